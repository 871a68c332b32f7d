/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Two tables: commands with how many words they take, options with the commands that know them.
 * A new option is a field in struct args and a line in the second table.
 *
 * Options may stand anywhere, as `--name value` or `--name=value`, until a word `--`. They are not
 * abbreviated: a script that is right today must not become ambiguous with a later option.
 */
#include "tools/ctl/args.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>

#include "daemon/base/units.h"
#include "daemon/core/format/geometry.h"

#define BIT(cmd) (1u << (cmd))
#define ALL (BIT(CMD_COUNT) - 1)
#define WAITS                                                                                      \
	(BIT(CMD_CREATE) | BIT(CMD_IMPORT) | BIT(CMD_START) | BIT(CMD_STOP) | BIT(CMD_STATUS) |    \
	 BIT(CMD_ADD) | BIT(CMD_READD))
#define TAKES (BIT(CMD_CREATE) | BIT(CMD_ADD)) /* devices */
#define ENDS (BIT(CMD_STOP) | BIT(CMD_FORGET) | BIT(CMD_DETACH))

static const struct {
	const char *name;
	int min, max; /* words after the command */
	const char *usage;
	const char *help;
} commands[CMD_COUNT] = {
    [CMD_CREATE] = {"create", 2, 1 + DDR_MAX_MEMBERS,
		    "create NAME --order N [--layout rotate|dedicated] [--stripe SIZE] "
		    "[--band SIZE] [--region-size SIZE] [--slots N] [--set KEY=VALUE]... "
		    "[--zeroed] [--wipe] [--old-member] [--unaligned] [--wait] URI...",
		    "make an array of 2^N + 1 members and start it on all nodes"},
    [CMD_IMPORT] = {"import", 1, DDR_MAX_MEMBERS, "import [--degraded] [--stale] [--wait] URI...",
		    "bring back an array that no node knows, by its members"},
    [CMD_START] = {"start", 1, 1,
		   "start NAME [--all-nodes] [--stale] [--alone] [--take-over] [--wait]",
		   "start a known array"},
    [CMD_STOP] = {"stop", 1, 1, "stop NAME [--all-nodes] [--disconnect] [--wait]",
		  "stop an array that nobody has open"},
    [CMD_STATUS] = {"status", 0, 1, "status [NAME] [--ranges] [--wait]",
		    "how the arrays are, and why something waits"},
    [CMD_FAIL] = {"fail", 2, 2, "fail NAME MEMBER", "take a member out of use"},
    [CMD_ADD] = {"add", 3, 3, "add NAME MEMBER URI [--wipe] [--old-member] [--unaligned] [--wait]",
		 "put a new device in a member's place and rebuild onto it"},
    [CMD_READD] = {"re-add", 2, 2, "re-add NAME MEMBER [--wait]",
		   "take a member back with what it missed"},
    [CMD_ATTACH] = {"attach", 1, 1, "attach NAME [--via shim|nbd] [--away hold|TIME]",
		    "make the array a block device of this node, now and after each start"},
    [CMD_DETACH] = {"detach", 1, 1, "detach NAME [--disconnect]",
		    "take that block device away, if nobody has it open"},
    [CMD_FORGET] = {"forget", 1, 1, "forget NAME [--disconnect]",
		    "make all nodes forget a stopped array; its members stay as they are"},
    [CMD_NODES] = {"nodes", 0, 0, "nodes", "the nodes of the cluster"},
    [CMD_SET] = {"set", 2, 3, "set NAME KEY=VALUE", "change a setting"},
    [CMD_GET] = {"get", 0, 2, "get NAME|--daemon [KEY]", "print settings"},
    [CMD_VERSION] = {"version", 0, 0, "version", "versions of command and daemon"},
    [CMD_EXAMINE] = {"examine", 1, ARGS_MAX_WORDS, "examine URI|FILE... [--ranges]",
		     "what a member says of itself; needs no daemon"},
    [CMD_HELP] = {"help", 0, 1, "help [COMMAND]", "this text"},
};

struct option {
	const char *name;
	uint32_t commands;
	int (*set)(struct args *a, char *value, const char **why); /* NULL: a flag */
	size_t flag; /* offset of the bool in struct args */
};

static int refuse(const char **why, const char *text)
{
	*why = text;
	return -EINVAL;
}

/* Sizes travel in 32 bits, and 0 there means the default. */
static int set_size(uint64_t *to, const char *value, const char **why)
{
	uint64_t bytes;
	int err = size_parse(value, &bytes, why);

	if (!err && (!bytes || bytes > UINT32_MAX))
		return refuse(why, "the size is out of range: choose one from 1 to 2G");
	if (!err)
		*to = bytes;
	return err;
}

static int set_stripe(struct args *a, char *value, const char **why)
{
	return set_size(&a->stripe_bytes, value, why);
}

static int set_band(struct args *a, char *value, const char **why)
{
	return set_size(&a->band_bytes, value, why);
}

static int set_region(struct args *a, char *value, const char **why)
{
	return set_size(&a->region_bytes, value, why);
}

static int set_order(struct args *a, char *value, const char **why)
{
	a->has_order = true;
	if (number_parse(value, 1, DDR_MAX_ORDER, &a->order))
		return refuse(why, "the order is 1, 2 or 3: 2, 4 or 8 members for data");
	return 0;
}

static int set_slots(struct args *a, char *value, const char **why)
{
	if (number_parse(value, 2, DDR_MAX_SLOTS, &a->slots))
		return refuse(why, "the number of slots is 2 to 64, at least one for each node");
	return 0;
}

static int set_timeout(struct args *a, char *value, const char **why)
{
	if (number_parse(value, 1, 365 * 86400, &a->timeout_s))
		return refuse(why, "the timeout is a whole number of seconds from 1 on");
	return 0;
}

static int set_layout(struct args *a, char *value, const char **why)
{
	if (!strcmp(value, "rotate"))
		a->layout = GEO_ROTATE;
	else if (!strcmp(value, "dedicated"))
		a->layout = GEO_DEDICATED;
	else
		return refuse(why, "the layout is rotate or dedicated");
	return 0;
}

static int set_setting(struct args *a, char *value, const char **why)
{
	if (a->settings == ARGS_MAX_SETTINGS)
		return refuse(why, "too many settings: set the others after the array is made");
	if (!strchr(value, '=') || value[0] == '=')
		return refuse(why, "a setting is KEY=VALUE");
	a->setting[a->settings++] = value;
	return 0;
}

static int set_via(struct args *a, char *value, const char **why)
{
	if (strcmp(value, "shim") && strcmp(value, "nbd"))
		return refuse(why,
			      "the way is shim (ddraid's driver) or nbd (the kernel's NBD client)");
	a->via = value;
	return 0;
}

static int set_away(struct args *a, char *value, const char **why)
{
	uint32_t ms;

	a->away = value;
	return away_parse(value, &ms, why);
}

static int set_ipc(struct args *a, char *value, const char **why)
{
	if (!strchr(value, '/') && array_name_check(value, NULL))
		return refuse(why, "the name of a daemon has letters, digits, '.', '_' and '-' "
				   "only, and the path of its socket a '/'");
	if (strlen(value) >= sizeof(((struct sockaddr_un *)0)->sun_path))
		return refuse(why, "the path of a socket has at most 107 characters");
	a->ipc = value;
	return 0;
}

#define FLAG(field) NULL, offsetof(struct args, field)
static const struct option options[] = {
    {"order", BIT(CMD_CREATE), set_order, 0},
    {"layout", BIT(CMD_CREATE), set_layout, 0},
    {"stripe", BIT(CMD_CREATE), set_stripe, 0},
    {"band", BIT(CMD_CREATE), set_band, 0},
    {"region-size", BIT(CMD_CREATE), set_region, 0},
    {"slots", BIT(CMD_CREATE), set_slots, 0},
    {"set", BIT(CMD_CREATE), set_setting, 0},
    {"zeroed", BIT(CMD_CREATE), FLAG(zeroed)},
    {"wipe", TAKES, FLAG(wipe)},
    {"old-member", TAKES, FLAG(old_member)},
    {"unaligned", TAKES, FLAG(unaligned)},
    {"disconnect", ENDS, FLAG(disconnect)},
    {"force", 0, FLAG(force)}, /* see instead_of_force */
    {"degraded", BIT(CMD_IMPORT), FLAG(degraded)},
    {"stale", BIT(CMD_IMPORT) | BIT(CMD_START), FLAG(stale)},
    {"all-nodes", BIT(CMD_START) | BIT(CMD_STOP), FLAG(all_nodes)},
    {"alone", BIT(CMD_START), FLAG(alone)},
    {"take-over", BIT(CMD_START), FLAG(take_over)},
    {"via", BIT(CMD_ATTACH), set_via, 0},
    {"away", BIT(CMD_ATTACH), set_away, 0},
    {"ranges", BIT(CMD_STATUS) | BIT(CMD_EXAMINE), FLAG(ranges)},
    {"daemon", BIT(CMD_GET), FLAG(daemon)},
    {"json", ALL, FLAG(json)},
    {"wait", WAITS, FLAG(wait)},
    {"timeout", ALL, set_timeout, 0},
    {"ipc", ALL, set_ipc, 0},
};
#define OPTIONS (sizeof(options) / sizeof(options[0]))
_Static_assert(OPTIONS <= 32, "a mask of them");

__attribute__((format(printf, 2, 3))) static int wrong(char error[ARGS_ERROR_BYTES],
						       const char *format, ...)
{
	__builtin_va_list ap;

	__builtin_va_start(ap, format);
	vsnprintf(error, ARGS_ERROR_BYTES, format, ap);
	__builtin_va_end(ap);
	return -EINVAL;
}

static const struct option *option_find(const char *name, size_t n)
{
	for (size_t i = 0; i < OPTIONS; i++)
		if (strlen(options[i].name) == n && !memcmp(options[i].name, name, n))
			return &options[i];
	return NULL;
}

/* argv[*at] is --something; *at ends on the last argument that belongs to it. */
static int option_take(struct args *a, int argc, char **argv, int *at, uint32_t *used, char *error)
{
	char *name = argv[*at] + 2, *value = strchr(name, '=');
	size_t n = value ? (size_t)(value - name) : strlen(name);
	const struct option *o = option_find(name, n);
	const char *why = NULL;

	if (!o)
		return wrong(error, "there is no option --%.*s: 'ddraidctl help' lists them",
			     n > 40 ? 40 : (int)n, name);
	*used |= BIT(o - options);
	if (!o->set) {
		if (value)
			return wrong(error, "the option --%s takes no value", o->name);
		*(bool *)((char *)a + o->flag) = true;
		return 0;
	}
	if (value)
		value++;
	else if (*at + 1 < argc)
		value = argv[++*at];
	else
		return wrong(error, "the option --%s needs a value", o->name);
	if (o->set(a, value, &why))
		return wrong(error, "--%s %.80s: %s", o->name, value, why);
	return 0;
}

static int command_find(const char *name)
{
	for (int i = 0; i < CMD_COUNT; i++)
		if (!strcmp(commands[i].name, name))
			return i;
	return -1;
}

/* What one has to say in its place, since it meant six things. */
static const char *instead_of_force(enum command cmd)
{
	if (BIT(cmd) & TAKES)
		return "say what may be overwritten: --wipe what others have written (file "
		       "systems, "
		       "LVM, RAID, partitions), --old-member what ddraid has; or --unaligned, that "
		       "fragments may be smaller than a device's blocks";
	if (BIT(cmd) & ENDS)
		return "say --disconnect to cut off who has the array open";
	if (cmd == CMD_START)
		return "say --stale to go on with an older state of the array, --alone if the "
		       "other "
		       "nodes are off, or --take-over if it is another cluster's";
	if (cmd == CMD_IMPORT)
		return "say --degraded to go on without a member, or --stale with an older state";
	return NULL;
}

static int check_options(const struct args *a, uint32_t used, char *error)
{
	const char *instead = a->force ? instead_of_force(a->cmd) : NULL;

	if (instead)
		return wrong(error, "'%s' has no option --force: %s", commands[a->cmd].name,
			     instead);
	for (size_t i = 0; i < OPTIONS; i++)
		if (used & BIT(i) && !(options[i].commands & BIT(a->cmd)))
			return wrong(error, "'%s' has no option --%s; usage: ddraidctl %s",
				     commands[a->cmd].name, options[i].name,
				     commands[a->cmd].usage);
	return 0;
}

/* KEY=VALUE, or KEY VALUE. */
static bool is_setting(char *const *word, int count)
{
	const char *at = strchr(word[0], '=');

	return count == 2 ? word[0][0] : at && at != word[0];
}

static int check_words(struct args *a, char *error)
{
	int least = commands[a->cmd].min, most = commands[a->cmd].max;

	if (a->daemon)
		most--;
	if (a->count < least || a->count > most)
		return wrong(error, "%s words after '%s'; usage: ddraidctl %s",
			     a->count < least ? "too few" : "too many", commands[a->cmd].name,
			     commands[a->cmd].usage);
	if (a->cmd == CMD_STATUS && a->wait && !a->count)
		return wrong(error, "wait for which array? usage: ddraidctl %s",
			     commands[a->cmd].usage);
	if (a->cmd == CMD_GET && !a->daemon && !a->count)
		return wrong(error, "whose settings? usage: ddraidctl %s", commands[a->cmd].usage);
	if (a->cmd == CMD_SET && !is_setting(a->word + !a->daemon, a->count - !a->daemon))
		return wrong(error, "a setting is KEY=VALUE; usage: ddraidctl %s",
			     commands[a->cmd].usage);
	return 0;
}

static int check_create(const struct args *a, char *error)
{
	const char *why;
	int want;

	if (array_name_check(a->word[0], &why))
		return wrong(error, "the name \"%.64s\" can't be used: %s", a->word[0], why);
	if (!a->has_order)
		return wrong(error, "which order? --order 1, 2 or 3 takes 3, 5 or 9 members");
	want = (1 << a->order) + 1;
	if (a->count - 1 != want)
		return wrong(error,
			     "order %d takes %d members (%d for data, 1 for parity), and %d were "
			     "named",
			     (int)a->order, want, want - 1, a->count - 1);
	for (int i = 1; i < a->count; i++)
		if (!a->word[i][0] || strlen(a->word[i]) >= DDR_URI_BYTES)
			return wrong(error, "the URI of member %d is empty or longer than %d",
				     i - 1, DDR_URI_BYTES - 1);
	return 0;
}

/* Collects the words, applies the options. -EINVAL, 0, or 1 if help was asked for. */
static int walk(struct args *a, int argc, char **argv, uint32_t *used, char *error)
{
	bool plain = false, help = false;
	int words = 0, err;

	for (int i = 1; i < argc; i++) {
		if (!plain && !strcmp(argv[i], "--")) {
			plain = true;
		} else if (!plain && (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))) {
			help = true;
		} else if (!plain && !strcmp(argv[i], "--version")) {
			a->version = true;
		} else if (!plain && !strncmp(argv[i], "--", 2)) {
			err = option_take(a, argc, argv, &i, used, error);
			if (err && !help)
				return err;
		} else if (!plain && argv[i][0] == '-' && argv[i][1]) {
			return wrong(error, "there is no option %.40s: 'ddraidctl help' lists them",
				     argv[i]);
		} else {
			a->word[words++] = argv[i];
		}
	}
	a->count = words;
	return help;
}

static bool json_asked(int argc, char **argv)
{
	for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
		if (!strcmp(argv[i], "--json"))
			return true;
	return false;
}

int args_parse(struct args *a, int argc, char **argv, char error[ARGS_ERROR_BYTES])
{
	uint32_t used = 0;
	int help, cmd;

	memset(a, 0, sizeof(*a));
	a->word = a->words;
	error[0] = '\0';
	a->json = json_asked(argc, argv); /* also for what is said of a wrong command line */
	if (argc - 1 > ARGS_MAX_WORDS)
		return wrong(error, "more than %d arguments", ARGS_MAX_WORDS);
	help = walk(a, argc, argv, &used, error);
	if (a->version) {
		a->cmd = CMD_HELP;
		return 0;
	}
	if (help < 0)
		return help;
	if (!a->count && !help)
		return wrong(error, "no command; 'ddraidctl help' lists them");
	cmd = a->count ? command_find(a->word[0]) : CMD_HELP;
	if (cmd < 0)
		return wrong(error, "there is no command '%.40s': 'ddraidctl help' lists them",
			     a->word[0]);
	a->cmd = (enum command)cmd;
	if (help) {
		if (a->cmd == CMD_HELP && a->count)
			a->word++, a->count--;
		a->cmd = CMD_HELP;
		return 0;
	}
	a->word++;
	a->count--;
	if (check_options(a, used, error))
		return -EINVAL;
	if (check_words(a, error))
		return -EINVAL;
	if (a->cmd == CMD_HELP && a->count && command_find(a->word[0]) < 0)
		return wrong(error, "there is no command '%.40s': 'ddraidctl help' lists them",
			     a->word[0]);
	return a->cmd == CMD_CREATE ? check_create(a, error) : 0;
}

char *args_split(char *setting)
{
	char *at = strchr(setting, '=');

	if (!at || at == setting)
		return NULL;
	*at = '\0';
	return at + 1;
}

const char *args_name(enum command cmd)
{
	return commands[cmd].name;
}

const char *args_usage(enum command cmd)
{
	return commands[cmd].usage;
}

const char *args_help(enum command cmd)
{
	return commands[cmd].help;
}
