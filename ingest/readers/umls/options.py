"""Options of UMLS: languages, sources, restriction levels, suppression, semantic types."""

from __future__ import annotations

from dataclasses import dataclass

from pearl_qdrant.errors import SettingsError

LANGUAGES = {
    "ar": "ARA", "bg": "BUL", "cs": "CZE", "da": "DAN", "de": "GER", "el": "GRE", "en": "ENG", "es": "SPA",
    "et": "EST", "eu": "BAQ", "fi": "FIN", "fr": "FRE", "he": "HEB", "hr": "SCR", "hu": "HUN", "is": "ICE",
    "it": "ITA", "ja": "JPN", "ko": "KOR", "lt": "LIT", "lv": "LAV", "nb": "NOR", "nl": "DUT", "nn": "NOR",
    "no": "NOR", "pl": "POL", "pt": "POR", "ro": "RUM", "ru": "RUS", "sk": "SLO", "sl": "SLV", "sv": "SWE",
    "tr": "TUR", "uk": "UKR", "zh": "CHI",
}  # fmt: skip
"""UMLS's codes (LAT, after ISO 639-2/B) by ISO 639-1. Other languages are given by the code of UMLS."""

_OTHER_CODES = {
    "BAQ": "EUS", "CHI": "ZHO", "CZE": "CES", "DUT": "NLD", "FRE": "FRA", "GER": "DEU", "GRE": "ELL", "ICE": "ISL",
    "RUM": "RON", "SCR": "HRV", "SLO": "SLK",
}  # fmt: skip
_OF_OTHER_CODE = {other: code for code, other in _OTHER_CODES.items()}

SUPPRESS_FLAGS = "NOEY"
"""N: not suppressed; O: obsolete; E: by an editor; Y: by the source."""


def umls_language(code: str) -> str:
    """The three-letter code of UMLS for a language given by ISO 639-1, 639-2 or that code; ``en-GB`` is ``ENG``.

    Raises:
        SettingsError: If it is none of these.
    """
    plain = code.strip().replace("_", "-").partition("-")[0]
    if plain.lower() in LANGUAGES:
        return LANGUAGES[plain.lower()]
    upper = plain.upper()
    if len(upper) == 3 and upper.isascii() and upper.isalpha():
        return _OF_OTHER_CODE.get(upper, upper)
    known = ", ".join(sorted(LANGUAGES))
    raise SettingsError(f"'{code}' is not a language of UMLS. Give a code of three letters (ENG), or one of: {known}")


@dataclass(frozen=True, slots=True)
class UmlsOptions:
    """Which atoms are read.

    Attributes:
        languages: Codes as `umls_language` takes them; the first one's names are preferred. Empty: all, English first.
        sabs: Source abbreviations (``SNOMEDCT_US``); the definition of the first one is preferred. Empty: all.
        srl_max: Highest restriction level of a source; 0 allows only sources without extra terms. None: all.
        suppress: Flags of SUPPRESS to keep.
        semantic_types: Entities of any of these; see `SemanticTypes.resolve`. Empty: all.
    """

    languages: tuple[str, ...] = ("ENG",)
    sabs: tuple[str, ...] = ()
    srl_max: int | None = None
    suppress: tuple[str, ...] = ("N",)
    semantic_types: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Convert codes to those of UMLS.

        Raises:
            SettingsError: If a value makes no sense.
        """
        object.__setattr__(self, "languages", tuple(dict.fromkeys(map(umls_language, self.languages))))
        object.__setattr__(self, "sabs", tuple(dict.fromkeys(sab.strip().upper() for sab in self.sabs)))
        object.__setattr__(self, "suppress", tuple(dict.fromkeys(flag.strip().upper() for flag in self.suppress)))
        unknown = [flag for flag in self.suppress if flag not in tuple(SUPPRESS_FLAGS)]
        if unknown or not self.suppress:
            raise SettingsError(
                f"SUPPRESS is one of {', '.join(SUPPRESS_FLAGS)}, not {', '.join(unknown) or 'nothing'}"
            )
        if self.srl_max is not None and self.srl_max < 0:
            raise SettingsError(f"the highest restriction level is 0 or more, not {self.srl_max}")
