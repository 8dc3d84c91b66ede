#!/bin/sh
# Stands in for the start of the Postgres image: the database, its user and its password, then the server.
set -eu
data=/var/lib/postgresql/trial
if [ ! -s "$data/PG_VERSION" ]; then
    initdb --pgdata="$data" --username="$POSTGRES_USER" --pwfile="$POSTGRES_PASSWORD_FILE" \
        --auth-local=trust --auth-host=scram-sha-256 --encoding=UTF8 --locale=C
    echo "host all all all scram-sha-256" >> "$data/pg_hba.conf"
    printf 'CREATE DATABASE %s;\n' "$POSTGRES_DB" | postgres --single -D "$data" postgres
fi
exec postgres -D "$data" -c listen_addresses='*' -c unix_socket_directories=/tmp
