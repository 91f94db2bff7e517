# The service and the command line in one image, without root and with a read-only root file system.
#   docker build -t pearl-qdrant .
#   docker run --rm --read-only --tmpfs /tmp -v pearl-data:/data pearl-qdrant demo
#   docker run --rm --read-only --tmpfs /tmp -v pearl-data:/data -p 127.0.0.1:8765:8765 pearl-qdrant
# The wheel has the model: nothing is downloaded when it runs. docker-compose.yml starts it beside a Qdrant server.
ARG PYTHON_VERSION=3.12

FROM python:${PYTHON_VERSION}-slim AS build
# Extras of pyproject.toml, rdf for ontologies in OWL: add arrow for bases in Parquet (171 MB), torch for a GPU.
ARG EXTRAS=serve,rdf,workbooks
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE NOTICE ./
COPY pearl_qdrant pearl_qdrant
COPY ingest ingest
COPY training training
COPY examples/sample_base.tsv examples/
RUN python -m pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .
# Without pip and numpy's tests.
RUN python -m venv --without-pip /venv
RUN python -m pip --python /venv/bin/python install --no-cache-dir --constraint constraints.txt "$(echo /wheels/pearl_qdrant-*.whl)[${EXTRAS}]"
RUN find /venv -type d -name tests -path '*/numpy/*' -prune -exec rm -r {} +

FROM python:${PYTHON_VERSION}-slim
RUN groupadd --gid 10001 pearl && useradd --uid 10001 --gid pearl --no-create-home --home-dir /data --shell /usr/sbin/nologin pearl
RUN install --directory --owner=pearl --group=pearl --mode=0750 /data /cache
COPY --from=build /venv /venv
ENV PATH=/venv/bin:$PATH
ENV PYTHONUNBUFFERED=1
ENV XDG_CACHE_HOME=/cache
ENV PEARL_QDRANT_STORE=/data/store
ENV PEARL_QDRANT_HOST=0.0.0.0
ENV PEARL_QDRANT_PORT=8765
WORKDIR /data
USER 10001:10001
EXPOSE 8765
STOPSIGNAL SIGTERM
# Live, not ready: a service without a collection yet is no reason to restart it.
HEALTHCHECK --interval=15s --timeout=5s --start-period=60s --retries=4 \
    CMD ["python", "-c", "import os, urllib.request as r; r.urlopen('http://127.0.0.1:' + os.environ['PEARL_QDRANT_PORT'] + '/health/live', timeout=4)"]
ENTRYPOINT ["pearl-qdrant"]
CMD ["serve"]
