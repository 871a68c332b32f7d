/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "tools/ctl/table.h"

#include <assert.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/units.h"

void table_cell(struct table *t, const char *format, ...)
{
	char text[TABLE_CELL_BYTES], clean[TABLE_CELL_BYTES];
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	if (t->cells == t->capacity) {
		t->capacity = t->capacity ? t->capacity * 2 : 64;
		t->cell = realloc(t->cell, t->capacity * sizeof(*t->cell));
		assert(t->cell);
	}
	t->cell[t->cells] = strdup(text_clean(clean, sizeof(clean), text));
	assert(t->cell[t->cells]);
	t->cells++;
}

void table_drop(struct table *t)
{
	for (unsigned i = 0; i < t->cells; i++)
		free(t->cell[i]);
	free(t->cell);
	*t = (struct table){.columns = t->columns};
}

void table_print(struct table *t, FILE *out, unsigned indent)
{
	int width[TABLE_MAX_COLUMNS] = {0};

	assert(t->columns && t->columns <= TABLE_MAX_COLUMNS && t->cells % t->columns == 0);
	for (unsigned i = 0; i < t->cells; i++) {
		int n = (int)strlen(t->cell[i]);

		if (n > width[i % t->columns])
			width[i % t->columns] = n;
	}
	for (unsigned row = 0; row < t->cells; row += t->columns) {
		unsigned last = t->columns;

		while (last && !t->cell[row + last - 1][0])
			last--;
		fprintf(out, "%*s", (int)indent, "");
		for (unsigned i = 0; i + 1 < last; i++)
			fprintf(out, "%-*s  ", width[i], t->cell[row + i]);
		fprintf(out, "%s\n", last ? t->cell[row + last - 1] : "");
	}
	table_drop(t);
}
