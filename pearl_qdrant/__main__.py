"""`python -m pearl_qdrant`: the command line."""

import sys
from pathlib import Path

if __name__ == "__main__":
    # Python looks into the current folder first, where files may have the names of our packages (`ingest.py`).
    here = Path(sys.path[0]).resolve()
    if here == Path.cwd() and here != Path(__file__).resolve().parents[1]:
        del sys.path[0]

    from pearl_qdrant.cli import main

    main()
