#!/bin/sh
# Copies Apache Kafka and its dependencies into a folder of jars with Maven, and installs Maven and Java if they are
# missing. Does nothing if this version is installed already, so the folder can be kept between runs.
# LIKEWISE_SERVERS_KAFKA=apache:DIR makes the tests and `likewise dev` use it.
set -eu

if [ $# != 1 ]; then
	echo "usage: $0 DIR" >&2
	exit 2
fi
dir=$1
# One version, not a range: for days after a release, Maven Central lists the new version of some artifacts only.
version=4.3.1
[ -e "$dir/kafka_2.13-$version.jar" ] && exit 0

if ! command -v mvn >/dev/null || ! command -v java >/dev/null; then
	"$(dirname "$0")/install-packages.sh" maven default-jre-headless
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
# slf4j-simple, in the version that Kafka's own API has, makes Kafka say on standard error what is wrong.
cat >"$work/pom.xml" <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>likewise</groupId>
  <artifactId>kafka</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka_2.13</artifactId>
      <version>$version</version>
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
echo "$dir/kafka_2.13-$version.jar"
