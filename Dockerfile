FROM python:3.11-slim AS build

# The address of an index with CPU-only wheels of torch makes the image several times smaller:
#   docker build --build-arg TORCH_INDEX=https://... .
ARG TORCH_INDEX=""

WORKDIR /src
RUN python -m venv /venv
COPY constraints.txt ./
# torch first, in a layer of its own: it is large and seldom changes
RUN /venv/bin/pip install --no-cache-dir -c constraints.txt ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} torch
COPY . .
RUN /venv/bin/pip install --no-cache-dir -c constraints.txt '.[sql]'


FROM python:3.11-slim

# without a C++ compiler the exported graph is run; docs/engines.md says how an image has the compiled one
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin forescore \
    && install -d -o forescore -g forescore -m 0700 /var/lib/forescore
COPY --from=build /venv /venv

ENV PATH=/venv/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    FORESCORE_HOME=/var/lib/forescore \
    FORESCORE_SERVICE__HOST=0.0.0.0 \
    FORESCORE_SERVICE__PORT=8000
USER forescore
WORKDIR /var/lib/forescore
VOLUME /var/lib/forescore
EXPOSE 8000

HEALTHCHECK --interval=10s --timeout=3s --start-period=60s --retries=3 \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/readyz', timeout=2)"]

ENTRYPOINT ["forescore"]
CMD ["serve"]
