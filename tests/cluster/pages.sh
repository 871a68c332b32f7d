# SPDX-License-Identifier: GPL-2.0-or-later
# For a scenario that types what a page for operators says. Needs CLUSTER_SRC.

# page_block PAGE SECTION NUMBER: the commands of that block of doc/operating-PAGE.md. Blocks that are to be typed are marked `sh`.
page_block() {
	awk -v section="$2" -v number="$3" '
		/^## / { here = index($0, section) == 4; count = 0 }
		/^```$/ { inside = 0 }
		inside && here && count == number
		/^```sh$/ { count++; inside = 1 }' "$CLUSTER_SRC/doc/operating-$1.md"
}
