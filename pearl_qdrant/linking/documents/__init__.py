"""Linking in documents: what the other mentions and the words of a text say of the candidates of a mention.

model.py            features and coefficients of one log-linear model
mentions.py         a mention of a document with its features
features/           the features, one family a module
resolve.py          all features of a document, in their order
linking.py          documents, and mentions with a context
"""
