"""Linking in documents: what the other mentions and the words of a text say of the candidates of a mention."""
