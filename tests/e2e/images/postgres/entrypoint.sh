#!/bin/sh
# Makes the database of POSTGRES_USER, POSTGRES_PASSWORD and POSTGRES_DB where there is none, and becomes Postgres.
set -eu

user="${POSTGRES_USER:-postgres}"
database="${POSTGRES_DB:-$user}"

# Made beside its place and then moved there: what is killed half-way is made anew.
make_cluster() {
    new="$PGDATA.new"
    rm -rf "$new"
    password="$(mktemp)"
    printf '%s\n' "$POSTGRES_PASSWORD" >"$password"
    initdb --pgdata="$new" --username="$user" --pwfile="$password" --auth=scram-sha-256 --encoding=UTF8 --locale=C.UTF-8
    rm "$password"
    echo 'host all all all scram-sha-256' >>"$new/pg_hba.conf"
    if [ "$database" != postgres ]; then
        echo "CREATE DATABASE \"$database\"" | postgres --single -D "$new" postgres
    fi
    mv "$new" "$PGDATA"
}

[ -s "$PGDATA/PG_VERSION" ] || make_cluster
exec postgres -D "$PGDATA" -c listen_addresses='*' -c unix_socket_directories=/tmp "$@"
