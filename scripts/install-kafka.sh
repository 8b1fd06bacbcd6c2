#!/bin/sh
# Copies the newest Apache Kafka 4 with all it needs into a folder of jars, through Maven, and installs Maven and Java
# when they are missing. Does nothing when Kafka is there already, so that the folder can be kept between runs.
# LIKEWISE_SERVERS_KAFKA=apache:DIR makes the tests and `likewise dev` use it.
set -eu

if [ $# != 1 ]; then
	echo "usage: $0 DIR" >&2
	exit 2
fi
dir=$1
for jar in "$dir"/kafka_2.13-4.*.jar; do
	[ -e "$jar" ] && exit 0
done

if ! command -v mvn >/dev/null || ! command -v java >/dev/null; then
	"$(dirname "$0")/install-packages.sh" maven default-jre-headless
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
# slf4j-simple, in the version that Kafka's own API has, makes Kafka say on standard error what is wrong.
cat >"$work/pom.xml" <<'POM'
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>likewise</groupId>
  <artifactId>kafka</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka_2.13</artifactId>
      <version>[4.0,5.0)</version>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId>
      <artifactId>slf4j-simple</artifactId>
      <version>1.7.36</version>
    </dependency>
  </dependencies>
</project>
POM
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
# Under another name until it is whole: an interrupted run must not look like an installed Kafka.
rm -rf "$dir.part"
mvn -q -B -Dstyle.color=never -f "$work/pom.xml" dependency:copy-dependencies \
	-DincludeScope=runtime -DoutputDirectory="$dir.part"
rm -rf "$dir"
mv "$dir.part" "$dir"
echo "$dir"/kafka_2.13-*.jar
