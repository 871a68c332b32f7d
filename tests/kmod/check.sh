#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The kernel's own tools on the driver (kmod/check), against the headers of the lab's kernel. It needs the packages of
# `tools/deps --lab-all`.
set -u
export CLUSTER_FLAVOUR=lab LAB_CACHE=${LAB_CACHE:-/var/cache/ddraid-lab}
top_srcdir=${top_srcdir:-$(cd "$(dirname "$0")/../.." && pwd)}
# shellcheck source=tests/lib/cluster.sh
. "$top_srcdir/tests/lib/cluster.sh"

command -v sparse >/dev/null && compgen -G '/usr/src/linux-source-6.1*.tar.xz' >/dev/null ||
	{ echo "skipped: no sparse or linux-source-6.1 (tools/deps --lab-all)"; exit 77; }
lab_image && kdir=$(lab_kdir) || exit 77
bash "$top_srcdir/kmod/check" "$kdir"
