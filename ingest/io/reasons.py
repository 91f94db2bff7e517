"""Why rows are skipped or left out: keys of `ReadReport.skipped` and `filtered`, as reports print them."""

from __future__ import annotations

# Rows that are bad
NO_ID, NO_NAME, NOT_TEXT = "no_id", "no_name", "not_text"
TOO_FEW_COLUMNS, TOO_MANY_COLUMNS, BAD_QUOTING = "too_few_columns", "too_many_columns", "bad_quoting"
INVALID_UTF8, NUL_CHARACTER, LINE_TOO_LONG = "invalid_utf8", "nul_character", "line_too_long"
TOO_MANY_NAMES, TOO_MANY_ROWS = "too_many_names", "too_many_rows"
INVALID_JSON, NOT_AN_OBJECT, NESTED_TOO_DEEP = "invalid_json", "not_an_object", "nested_too_deep"
BAD_SYNONYM, MALFORMED_LINE, BAD_TRIPLE, NOT_AN_ENTITY = "bad_synonym", "malformed_line", "bad_triple", "not_an_entity"

# Rows that are good, and no entity or not wanted
COMMENT, ABOUT, OTHER_ROW = "comment", "line_about_the_table", "other_row"  # the last: such as an inactive one
OTHER_LANGUAGE, OTHER_SOURCE, OTHER_CLASS = "other_language", "other_source", "other_class"
RESTRICTED, SUPPRESSED, SEMANTIC_TYPE = "restricted", "suppressed", "semantic_type"
OBSOLETE, NOT_A_TERM, BLANK_NODE, ROW_ABOUT_A_ROW = "obsolete", "not_a_term", "blank_node", "row_about_a_row"
GENERIC_INSTANCE, WIKIMEDIA_INTERNAL = "generic_instance", "wikimedia_internal"
NOT_AN_ITEM, NO_LABEL, NO_SITELINK = "not_an_item", "no_label", "no_sitelink"
