# The service alone: no build tools, no root, one volume. Templates, replicas, catalogue and ledger live on that volume,
# because replicas are hard links and a link cannot cross mounts (nor point into an image's layers).
FROM python:3.11-slim-bookworm AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY bird_env bird_env
COPY server server
COPY snapshots snapshots
RUN python -m venv /opt/bird-env && /opt/bird-env/bin/pip install --no-cache-dir '.[server]'

FROM python:3.11-slim-bookworm
RUN useradd --system --uid 10001 --create-home bird && install -d -o bird -g bird /data
COPY --from=build /opt/bird-env /opt/bird-env
ENV PATH=/opt/bird-env/bin:$PATH BIRD_ENV_DATA=/data PYTHONUNBUFFERED=1
USER bird
VOLUME /data
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s --retries=3 \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/readyz', timeout=2)"]
STOPSIGNAL SIGTERM
# An init reaps what scorers leave and hands signals on; `docker run --init` or compose's `init: true` gives one.
ENTRYPOINT ["bird-env"]
CMD ["serve", "--host", "0.0.0.0", "--port", "8000"]
