#!/bin/sh
# What the tests against other programs need: Java 17, on which Spark runs too, and Maven, with which they fetch Apache
# Kafka and Spark's Kafka connector; kcat, and Node with npm for kafkajs. Installed when missing and possible (root and
# apt), else one line says what to install and the tests that need it are skipped.
#   scripts/peers.sh         all of them
#   scripts/peers.sh java    only Java, for those who run pipelines; without it this fails
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
need() { missing="${missing:+$missing }$1"; }
has_java || need openjdk-17-jre-headless
why="the tests against other programs"
if [ "${1:-}" = java ]; then
    why="Spark"
else
    command -v mvn >/dev/null || need maven
    command -v kcat >/dev/null || need kcat
    command -v node >/dev/null || need nodejs
    command -v npm >/dev/null || need npm
fi
[ -z "$missing" ] && exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "ottla: installing $missing, for $why"
    # shellcheck disable=SC2086
    scripts/apt.sh $missing && exit 0
    # Newer Debians have no Java 17; any later one does as well.
    # shellcheck disable=SC2046
    scripts/apt.sh $(echo "$missing" | sed 's/openjdk-17-jre-headless/default-jre-headless/') && exit 0
fi
if [ "${1:-}" = java ]; then
    echo "ottla: Spark needs Java 17 or newer; install it (Debian and Ubuntu: apt install openjdk-17-jre-headless," >&2
    echo "ottla: macOS: brew install openjdk@17), or set JAVA_HOME to where it is, and try again" >&2
    exit 1
fi
echo "ottla: some tests need other programs (Java 17 or newer, Maven, kcat, Node); please install: $missing"
