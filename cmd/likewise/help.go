package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"

	"likewise/counters"
	"likewise/migrations"
	"likewise/workers"
)

// commandTexts puts the help texts that are too long for a tag, and the defaults that the code knows, in place of their
// names. Vars of kong would do the same, but kong expands each of them again for every flag, which takes a process with
// the race detector a quarter of a second.
func commandTexts() kong.Option {
	texts := maps.Clone(helpTexts)
	texts["outbox_limit"] = strconv.Itoa(counters.DefaultOutboxLimit)
	texts["cool_after"] = workers.DefaultCoolAfter.String()
	texts["jobs"], texts["jobs_help"] = jobTexts()
	var pairs []string
	for name, text := range texts {
		pairs = append(pairs, "${"+name+"}", text)
	}
	expand := strings.NewReplacer(pairs...).Replace
	return kong.PostBuild(func(k *kong.Kong) error {
		return kong.Visit(k.Model.Node, func(node kong.Visitable, next kong.Next) error {
			switch node := node.(type) {
			case *kong.Node:
				node.Help = expand(node.Help)
				return errors.Join(nameSetters(node), next(nil))
			case *kong.Flag:
				node.PlaceHolder = expand(node.PlaceHolder)
			case *kong.Value:
				node.Help, node.Default, node.Enum = expand(node.Help), expand(node.Default), expand(node.Enum)
			}
			return next(nil)
		})
	})
}

// nameSetters adds to the help of each flag of the product who sets it. A flag that nobody sets is an error.
func nameSetters(node *kong.Node) error {
	if node.Name == "dev" || node.Name == "bench" { // developers
		return nil
	}
	for _, f := range node.Flags {
		if f.Name == "help" || f.Name == "version" {
			continue
		}
		by := setBy[f.Name]
		if by == "" {
			return fmt.Errorf("--%s: setBy does not have it", f.Name)
		}
		f.Help += " Set by " + by + "."
	}
	return nil
}

const (
	byEverySite  = "every site"
	byGatedSites = "every site whose likes are gated"
	byOperators  = "operators"
	byTLS        = "sites whose server requires it"
	byScripts    = "scripts"
	byMail       = "sites that send mail"
)

// setBy says who sets each flag of the product.
var setBy = map[string]string{ //nolint:gosec // no value is a password
	"access-log":            "sites whose proxy logs requests",
	"admin-listen":          "sites whose Prometheus runs on another machine",
	"api":                   byEverySite + " with these pages",
	"allow-newer-schema":    "operators, around an upgrade",
	"allow-weak-passwords":  "sites whose network nobody else can reach",
	"avatar-hosts":          "sites that show avatars of other hosts",
	"cool-after":            "sites whose Redis has little memory",
	"cors-origins":          "sites whose front end has another origin",
	"count":                 byScripts,
	"drain":                 "sites whose proxy checks at other intervals",
	"images":                "sites with uploads",
	"images-room":           "sites with uploads, by the size of their storage",
	"images-room-of-user":   "sites with uploads, by the size of their storage",
	"kafka":                 byGatedSites,
	"kafka-ca":              byTLS,
	"kafka-cert":            byTLS,
	"kafka-key":             byTLS,
	"kafka-password":        byTLS,
	"kafka-sasl":            byTLS,
	"kafka-tls":             byTLS,
	"kafka-user":            byTLS,
	"likes":                 "sites without Redis and Kafka",
	"limits":                "sites whose users need more, and tests under load",
	"listen":                "sites whose proxy expects another address",
	"log-format":            "sites that collect JSON",
	"log-level":             "operators who look for a fault",
	"mail-from":             byMail,
	"mysql-ca":              byTLS,
	"mysql-cert":            byTLS,
	"mysql-conns":           "sites whose MySQL allows fewer, or serves more",
	"mysql-dsn":             byEverySite,
	"mysql-key":             byTLS,
	"no-color":              "people in a terminal",
	"outbox-limit":          "sites by the memory of their Redis",
	"password-stdin":        byScripts,
	"public-url":            "sites with pages, feeds or a sitemap",
	"reason":                byOperators,
	"redis":                 byGatedSites,
	"redis-ca":              byTLS,
	"redis-cert":            byTLS,
	"redis-key":             byTLS,
	"repair":                "operators, after a difference was found",
	"registration":          "sites that are not open to everybody",
	"reserved-names":        "sites with other names that could mislead",
	"role":                  "operators, for the first admin",
	"secret-key-file":       byMail,
	"shards":                "large sites, when they are installed",
	"site":                  "operators who renamed the folder of a dump",
	"smtp":                  byMail,
	"staff-second-factor":   "sites whose staff need no second factor",
	"site-name":             "sites with a name other than their host",
	"timeout":               "sites with another scheduler",
	"topic":                 "sites that share Kafka",
	"trusted-proxies":       "sites behind a proxy",
	"wait":                  "operators whose pipeline is behind",
	"webhook-allow-private": "developers of webhooks",
}

// positionalName is the name of a positional argument as kong writes it, with the spaces up to the next column.
var positionalName = regexp.MustCompile(`<([a-z-]+)>(\]?)(  +)?`)

// capitalNames returns text with NAME in place of <name>, which a shell would take for a file. Columns stay aligned.
func capitalNames(text string) string {
	return positionalName.ReplaceAllStringFunc(text, func(found string) string {
		m := positionalName.FindStringSubmatch(found)
		if m[3] != "" {
			m[3] += "  "
		}
		return strings.ToUpper(m[1]) + m[2] + m[3]
	})
}

// printHelp prints kong's help with capitalNames.
func printHelp(options kong.HelpOptions, ctx *kong.Context) error {
	var text strings.Builder
	stdout := ctx.Stdout
	ctx.Stdout = &text
	err := kong.DefaultHelpPrinter(options, ctx)
	ctx.Stdout = stdout
	if err != nil {
		return fmt.Errorf("print help: %w", err)
	}
	_, err = io.WriteString(stdout, capitalNames(text.String()))
	return err
}

// Placeholders of settings, and the form that messages name.
const (
	smtpForm  = "smtp://USER:PASSWORD@HOST" //nolint:gosec // placeholders
	mysqlForm = "USER:PASSWORD@tcp(HOST:3306)/DATABASE"
	redisForm = "redis://HOST:6379/0"
)

var helpTexts = map[string]string{
	"web_api_help": "URL of the API, such as http://127.0.0.1:8080. The API must trust this process: name its " +
		"address in the API's --trusted-proxies, because limits are by the visitor's address.",
	"web_public_help": "URL of the pages as browsers see it. Under https, cookies are sent over TLS alone.",
	"web_proxies_help": "Trusted proxies before the pages: addresses or networks. Their X-Forwarded-For names the " +
		"visitor.",
	"smtp":   smtpForm,
	"dsn":    mysqlForm,
	"redis":  redisForm,
	"origin": "https://forum.example",

	// Commands
	"dev_help":   "Run everything in one process, with private MariaDB, Redis and Kafka servers.",
	"bench_help": "Measure likes, claims and reads side by side on private servers, and print ratios.",
	"cool_help": "Evict a post, comment or drop from Redis once MySQL has all of it, so that it is read from " +
		"MySQL again.",
	"cool_target_help": "What to evict, such as post:12, comment:7 or drop:3.",
	"cool_wait_help":   "How long to wait for the likes and claims that were accepted.",
	"likes_gated_help": "Let likes and claims go through Redis again, after direct mode. " +
		"Stop all processes of the site first.",
	"likes_direct_help": "Compare Redis with MySQL and, if MySQL has every like and claim, let them go to MySQL " +
		"directly. Stop all processes of the site first, and run the job flush.",
	"cron_help":        "Run the jobs on schedule until the process is stopped. Any number of processes may run them.",
	"healthcheck_help": "Check whether a running process answers, for containers.",
	"import_help": "Load a dump of a Stack Exchange site. The command can be stopped and run again; " +
		"nothing is imported twice.",
	"user_password_help": "Set the password of an account: ask for it in a terminal, or read the first line of " +
		"standard input. All its sessions and API tokens end.",
	"user_delete_help": "Delete the account of a banned user. " +
		"Nobody can register with its username or e-mail address until the ban ends.",

	// All commands
	"log_format_help": "Format of the log on standard error: text or json. " +
		"auto is short lines for people in a terminal, and text elsewhere.",
	"no_color_help":  "Write no colors to a terminal, whatever the value.",
	"log_level_help": "Lowest level that is logged: debug, info, warn or error.",

	// Servers
	"mysql_help":        "MySQL or MariaDB database.",
	"newer_schema_help": "Start on the schema of the next version, during an upgrade or after it was undone.",
	"restored_help": "Prepare a database that was restored from a backup: raise its ids, so that none is issued " +
		"twice. " +
		"Stop everything first.",
	"mysql_conns_help": "Maximum number of connections to MySQL; at least 4.",
	"likes_help": "gated: likes and claims go through Redis and Kafka. " +
		"direct: one MySQL transaction for each, for small sites without Redis and Kafka.",
	"redis_help": "Redis 7. Sentinel: with ?master_name=NAME&addr=HOST:PORT. " +
		"Cluster: redis+cluster://HOST:PORT?addr=HOST:PORT.",
	"ca_help": "Certificates, in PEM, of the authorities that sign the server's certificate. Without it, " +
		"those of the " +
		"system are trusted.",
	"cert_help":      "Certificate of this client, in PEM, for a server that requires one.",
	"key_help":       "Private key of this client's certificate, in PEM.",
	"kafka_tls_help": "Connect to Kafka over TLS. --kafka-ca and --kafka-cert imply it.",
	"sasl":           "none," + strings.Join(workers.SASLMechanisms(), ","),
	"sasl_help": "Mechanism of the account at the brokers: none, plain (over TLS alone), scram-sha-256 or " +
		"scram-sha-512.",
	"kafka_user_help":     "User name at the brokers.",
	"kafka_password_help": "Password at the brokers. Others can see arguments: set the variable.",
	"outbox_limit_help":   "Likes and claims that may wait for Kafka in each shard. At this limit, more are refused.",
	"kafka_help":          "Kafka brokers to connect to first.",
	"topic_help":          "Topic of the events of likes and claims, which is created if it is missing.",
	"shards_help": "Number of shards, fixed by the first run; 0: the installed number, or " +
		strconv.Itoa(migrations.DefaultShards) + ".",
	"admin_help":     "Address of /metrics, /readyz and /healthz, which clients must not reach.",
	"admin_dev_help": "Address of /metrics, /readyz and /healthz; dev.env has it as LIKEWISE_ADMIN_URL.",
	"cool_after_help": "Evict a post, comment or drop from Redis after this time without a like or a claim; at least " +
		workers.MinCoolAfter.String() + ".",
	"weak_password_help": "Start even if MySQL or Redis is on another machine and its password is missing or common.",

	// The API
	"drain_help": "Time after SIGTERM in which the process still accepts requests, while /readyz answers 503, so " +
		"that proxies notice before it stops.",
	"origins_help": "Origins whose pages may use the API from a browser, separated by commas. " +
		"* alone allows all; without a value, none.",
	"public_url_help": "URL of the front end, which forwards /v1 to the API. Feeds and the sitemap link to its pages " +
		"/posts/ID, /users/ID and /tags/TAG; without a value, there are none. " +
		"In dev it is the address of the pages.",
	"smtp_help": "Server that takes the mails of accounts; the port is 587, or 465 with smtps. With smtp the " +
		"connection is encrypted by STARTTLS, unless the server is on this machine. Workers send the mails, or " +
		"cron if likes are direct, and the API offers what needs them. Without it, that is off.",
	"mail_from_help": "Sender of mails: an address, with or without a name. --smtp needs it.",
	"secret_key_help": "File with the secret key of the site, of at least 32 bytes, which others cannot read. " +
		"The links in mails are made with it, and it seals the seeds of second factors. --smtp needs it.",
	"mail_url_help": "URL of the front end, to which the links in mails lead. --smtp needs it.",
	"site_name_help": "Name of the site, at most 50 characters. Without a value, it is the host of --public-url, or " +
		"Likewise without one and on localhost.",
	"limits_help":     "Factor of all limits on clients: 2 allows twice as much, and 0 turns the limits off.",
	"limits_dev_help": "Factor of all limits on clients: 1 is as in production, and 0 turns the limits off.",
	"proxies_help": "Trusted proxies: addresses or networks such as 10.0.0.0/8. " +
		"Their X-Forwarded-For names the client. If a proxy is not trusted, all its clients share one set of limits.",
	"registrations": "open,verified,closed",
	"registration_help": "Who can register: open (everybody), verified (everybody who confirms their e-mail address; " +
		"needs --smtp) or closed (nobody; the command user create makes accounts).",
	"need": "required,optional",
	"staff_help": "Whether moderators and admins need a session that used a second factor: required or optional. " +
		"Sessions of user token count as such.",
	"reserved_help": "Usernames that nobody can register, besides built-in ones such as admin and moderator. " +
		"Similar names are refused, too. The command user create accepts them.",
	"webhook_help": "Allow webhooks at private addresses, and without TLS, for development: " +
		"an admin could otherwise reach whatever this machine reaches.",
	"images_help": "Where uploaded images are kept: a folder, or s3://KEY:SECRET@HOST/BUCKET of a server that speaks " +
		"S3, with /PREFIX, ?region=REGION and &tls=false if needed. The API and cron need the same place. " +
		"Without it, users cannot upload images.",
	"images_room_help": "MiB that the images of all users may take with their thumbnails. " +
		"Uploads that do not fit are refused.",
	"images_room_of_user_help": "MiB that the images of one account may take with their thumbnails.",
	"avatar_help": "Hosts of avatars, such as images.example.org. Each learns the address of every reader. " +
		"* alone allows every host; without a value, none.",

	// Tools
	"verify_help": "Repair differences: set counts to the number of rows, " +
		"and send likes and claims that only Redis or only MySQL has through the pipeline again, as Redis has them.",
	"site_help": "Name of the import, such as quantumcomputing.stackexchange. A dump that was imported under another " +
		"name is refused. Default: the name of the folder.",
	"access_log_help": "Requests that are logged: all, errors (4xx and 5xx) or none.",
	"count_help":      "Print tokens of this many users: the oldest accounts, and new ones named script-N if needed.",
	"password_help":   "Read the password from the first line of standard input, and do not generate one.",
	"url_help":        "URL to request; workers answer on port 9081, and cron on 9082.",
	"bench_likes_help": "Likes of a round of those that like once: of 1,000 posts, by Zipf's law, of cold posts; " +
		"and claims.",
	"bench_loads_help": "Open loops: parts of the rate that a closed loop reached before.",
	"bench_only_help":  "Measure only the scenarios whose names contain one of these texts.",
	"bench_attacks":    "unread,unread-wide,expensive,uploads",
	"bench_parts":      "scenarios,load,lag,claims,ids,pipeline,sizes",
	"bench_parts_help": "What to measure. The attacks unread, unread-wide, expensive and uploads are measured only " +
		"if they are named.",
	"bench_quick_help":    "Measure for a minute, and fail if a ratio is below half of the recorded one.",
	"bench_record_help":   "Write benchmarks.md, benchmarks.json and plots into this folder.",
	"bench_recorded_help": "File with the recorded ratios.",
	"bench_rounds_help":   "Number of rounds. Every contender runs once in each, and the median round counts.",
	"bench_sizes_help": "Posts, each with 10 likes, that the site has while it is measured again; expensive attacks " +
		"one with the largest number.",
}
