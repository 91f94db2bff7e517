"""`python -m pearl_qdrant`: the command line."""

from pearl_qdrant.cli import main

if __name__ == "__main__":
    main()
