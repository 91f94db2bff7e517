"""The Reconciliation Service API at /reconcile/COLLECTION: version 0.2, which OpenRefine speaks."""
