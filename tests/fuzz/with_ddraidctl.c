// SPDX-License-Identifier: GPL-2.0-or-later
/* ddraidctl as a function, beside a fuzzer's own main. */
int ctl_main(int argc, char **argv);
#define main ctl_main
#include "tools/ddraidctl.c" /* NOLINT */
