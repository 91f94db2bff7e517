"""Names of many fields, and words of everyday language: mentions without an entity, for bases that do not have them."""

from __future__ import annotations

OTHER_FIELDS: dict[str, tuple[str, ...]] = {
    "disease": (
        "asthma", "type 2 diabetes mellitus", "psoriasis", "measles", "multiple sclerosis", "scarlet fever",
        "rheumatoid arthritis", "Crohn's disease", "tuberculosis", "melanoma", "cystic fibrosis", "migraine", "gout",
        "Parkinson's disease", "glaucoma", "appendicitis", "whooping cough", "osteoporosis", "dengue fever", "anorexia",
    ),
    "anatomy": (
        "left ventricle", "femur", "optic nerve", "small intestine", "pituitary gland", "thoracic vertebra", "bladder",
        "eyelid", "spleen", "cerebellum", "fibula", "aortic valve", "skeletal muscle tissue", "lymph node", "trachea",
    ),
    "gene or process": (
        "DNA repair", "lipid transport", "BRCA1", "cell division", "glycolysis", "mitochondrial matrix", "TP53",
        "protein folding", "signal transduction", "kinase activity", "ribosome", "RNA splicing", "interleukin 6",
    ),
    "drug": (
        "ibuprofen", "amoxicillin", "metformin", "warfarin", "prednisone", "paracetamol", "insulin glargine",
        "morphine",
        "atorvastatin", "vitamin D3", "lithium carbonate", "naloxone", "clopidogrel", "salbutamol inhaler", "heparin",
    ),
    "place": (
        "Lake Geneva", "Buenos Aires", "Mount Kenya", "Ohio River", "Kyoto", "Isle of Wight",
        "Yellowstone National Park",
        "Gulf of Finland", "Casablanca", "Tasmania", "Black Forest", "Cape Horn", "Siberia", "Oslo", "Lower Saxony",
    ),
    "person": (
        "Marie Curie", "Nelson Mandela", "Frida Kahlo", "Wolfgang Amadeus Mozart", "Rosa Parks", "Charles Darwin",
        "Leo Tolstoy", "Simone Biles", "Johannes Kepler", "Emily Dickinson", "Muhammad Ali", "Ada Lovelace",
        "Galileo Galilei", "Maria Callas", "Thomas Edison",
    ),
    "organisation": (
        "Lufthansa", "Royal Dutch Shell", "Red Cross", "Manchester United", "Sony Corporation", "Greenpeace", "IKEA",
        "World Health Organization", "Deutsche Bank", "Harvard Medical School", "Toyota Motor", "Interpol", "Nestlé",
        "Boston Celtics", "Pfizer",
    ),
    "work": (
        "Moby Dick", "The Magic Flute", "Casablanca (film)", "Star Wars", "Pride and Prejudice", "Abbey Road",
        "Blade Runner", "The Starry Night", "Game of Thrones", "Don Quixote", "Swan Lake", "The Hobbit", "Citizen Kane",
    ),
    "technology": (
        "hash table", "Kubernetes", "linear regression", "PostgreSQL", "TCP/IP", "quicksort", "garbage collection",
        "convolutional neural network", "USB-C cable", "Ubuntu 22.04", "JavaScript", "lithium-ion battery", "OAuth 2.0",
    ),
    "law and money": (
        "income tax return", "power of attorney", "compound interest", "First Amendment", "mortgage rate", "VAT number",
        "breach of contract", "40 dollars", "copyright law", "double-entry bookkeeping", "GDPR", "stock split",
    ),
    "food and animals": (
        "apple pie", "olive oil", "golden retriever", "blue whale", "sourdough bread", "grizzly bear", "green tea",
        "honey bee", "tomato soup", "emperor penguin", "oak tree", "cheddar cheese", "red fox", "banana bread",
    ),
}  # fmt: skip
"""Well-known names by field. A field of which the base has names is left out."""

COMMON_WORDS: tuple[str, ...] = (
    *(
        "offices yesterday morning question answer window meeting open letters running people things week afternoon "
        "garden kitchen table chair bottle driver teacher holiday weather ticket number price problem idea reason "
        "beginning middle corner street road visitor customer colleague neighbour brother daughter marriage birthday "
        "breakfast dinner luggage suitcase holidays shopping reading writing walking talking waiting quickly slowly "
        "perhaps therefore although because between without another several enough almost already beautiful difficult "
        "interesting expensive possible important different similar ready tired hungry busy quiet loud empty heavy "
        "yellow purple wooden broken borrowed missing hidden promised delivered finished started cancelled repeated"
    ).split(),
    "the other day", "last week", "a few days later", "on the way home", "in the meantime", "good morning",
    "as soon as possible", "more or less", "thank you very much", "no idea", "next door", "half an hour", "see above",
    "please reply", "not applicable", "to be confirmed", "n/a", "unknown", "misc", "test",
)  # fmt: skip
"""Words and phrases that are seldom names."""

OPPOSITES: dict[str, str] = dict(
    pair.split("/")
    for one in (
        "left/right upper/lower acute/chronic primary/secondary northern/southern eastern/western north/south "
        "east/west "
        "benign/malignant early/late positive/negative male/female old/new major/minor internal/external "
        "anterior/posterior dominant/recessive adult/juvenile increased/decreased first/second high/low inner/outer "
        "central/peripheral maternal/paternal summer/winter men's/women's"
    ).split()
    for pair in (one, "/".join(reversed(one.split("/"))))
)
"""Words whose exchange makes another thing of the same kind."""
