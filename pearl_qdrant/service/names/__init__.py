"""Type-ahead over the names of a collection: prefixes of names and of their words, and prefixes with a slip.

The index is a folder of flat files that are mapped into memory, so that workers share them and start at once:

    text        the folded names, one after the other
    starts      where their words start, sorted by the text from there to the end of the name
    keys        the first eight bytes of each, as numbers that numpy searches
    ranks       which of them to show first
    records     the entities as JSON

A prefix is two binary searches. A slip is a few hundred of them at once: each string that is one edit from the query.
"""
