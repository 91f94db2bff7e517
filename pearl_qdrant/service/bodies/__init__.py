"""Bodies of requests and answers, as OpenAPI shows them."""
