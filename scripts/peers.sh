#!/bin/sh
# Java 17 and Maven, with which tests fetch and run Apache Kafka's own tools. Installed when missing and
# possible (root and apt), else one line says what to install and the tests that need them are skipped.
set -eu
cd "$(dirname "$0")/.."

has_java() {
    for java in ${JAVA_HOME:+"$JAVA_HOME/bin/java"} java; do
        major="$("$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p')" || continue
        [ "${major:-0}" -ge 17 ] && return 0
    done
    return 1
}

missing=""
has_java || missing="openjdk-17-jre-headless"
command -v mvn >/dev/null || missing="${missing:+$missing }maven"
[ -z "$missing" ] && exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "ottla: installing $missing, for the tests against Apache Kafka"
    # Newer Debians have no Java 17; any later one does as well.
    # shellcheck disable=SC2086
    scripts/apt.sh $missing && exit 0
    scripts/apt.sh default-jre-headless maven && exit 0
fi
echo "ottla: tests against Apache Kafka need Java 17 or newer and Maven; please install: $missing"
