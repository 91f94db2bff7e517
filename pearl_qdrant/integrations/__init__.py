"""Connectors to other frameworks, one a module; each needs the extra of its name, and imports no other framework.

    from pearl_qdrant.integrations.langchain import EntityRetriever

LangChain (`langchain`), LlamaIndex (`llama_index`), Haystack (`haystack`), spaCy (`spacy`), the Model Context Protocol
(`mcp`), and tables (`pandas`, `polars`, `duckdb`). `retrieval` adds the entities of documents and queries to Qdrant.
"""
