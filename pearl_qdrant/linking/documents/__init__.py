"""Linking in documents: what the other mentions and the words of a text say of the candidates of a mention.

model.py            features and coefficients of one log-linear model
mentions.py         a mention of a document with its features
features.py         the features, one family after the other
linking.py          all features of a document in their order; documents, and mentions with a context
"""
