"""The store on a Qdrant server: uploads, searches, retries and limits over HTTP."""
