"""The features of a document, one family a module; `resolve` sets them in order.

learned_names.py    how often the mention meant each entity in labelled text
popularity.py       log(1 + popularity)
word_types.py       types of entities that the words around the mention suggest
partial_names.py    longer names of the document that the mention is a part of
passages.py         similarity of the passage to the description of each entity
coherence.py        links to the other entities of the document
"""
