"""The tasks that an encoder is measured by, one module a family, and the table of them all."""
