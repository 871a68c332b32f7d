/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A table of text: columns as wide as their widest cell. Cells are copied, and cleaned of what
 * isn't printable, since devices and peers choose some of it.
 */
#ifndef DDRAID_CTL_TABLE_H
#define DDRAID_CTL_TABLE_H

#include <stdio.h>

#define TABLE_MAX_COLUMNS 8
#define TABLE_CELL_BYTES 1024

struct table {
	unsigned columns, cells, capacity;
	char **cell;
};

/* One cell after the other, row by row. printf's arguments. */
__attribute__((format(printf, 2, 3))) void table_cell(struct table *t, const char *format, ...);
/* Prints it, each line indented, and empties it. No line ends in blanks. */
void table_print(struct table *t, FILE *out, unsigned indent);
void table_drop(struct table *t); /* empties it, without printing */

#endif
