#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Every C file of the project is as clang-format lays it out; no comment and no line of Markdown is too long. `--fix` rewrites those
# that are not. Of the product, no function has more than 70 lines and no file more than 1000. No file holds what a merge left
# undecided; all are in the tarball; and sources that comments and doc/ name are there.
set -eu

top_srcdir=${top_srcdir:-$(cd "$(dirname "$0")/.." && pwd)}
cd "$top_srcdir"

if [ -e .git ] && command -v git >/dev/null && git ls-files >/dev/null 2>&1; then
	! git grep -nE '^(<<<<<<<|>>>>>>>) ' || { echo "FAILED: a merge was not finished in these lines"; exit 1; }
	! git ls-files --cached --ignored --exclude-per-directory=.gitignore | grep . || {
		echo "FAILED: these files are built; take them out with: git rm --cached"
		exit 1
	}
	# A tarball has what the makefiles name, itself or a folder that it is in.
	unnamed=$(git ls-files -- '*.am' | xargs cat | grep -v '^#' | tr -s ' \t\\' '\n' | sort -u |
		awk 'NR == FNR { named[$0]; next }
			/\.am$|^\.git|^configure\.ac$/ { next }
			{
				path = $0
				while (!(path in named) && sub(/\/[^\/]*$/, "", path))
					;
				if (!(path in named) && !(($0 ~ /\.c$/) && substr($0, 1, length($0) - 2) in named))
					print "  " $0
			}' - <(git ls-files))
	[ -z "$unnamed" ] || { echo "$unnamed"; echo "FAILED: no Makemodule.am names these files, so no tarball has them"; exit 1; }
	# x.c stands for any; fs/ is the kernel's, exec/ corosync's, and the others named are not ours either.
	gone=$(git grep -noE '(^|[^A-Za-z0-9_./*<>"-])([a-z_0-9]+/)*[a-z][a-z_0-9]*\.[ch]\b' -- '*.c' '*.h' '*.md' '*.proto' |
		awk -v others=' x.c sysexits.h votequorum.c vsf_quorum.c ' '
			NR == FNR { sub(/.*\//, ""); there[$0]; next }
			{
				name = $0
				sub(/^[^:]*:[0-9]*:/, "", name)
				if (name ~ /(fs|exec)\//)
					next
				gsub(/.*\/|^[^a-z]/, "", name)
				if (!(name in there) && !index(others, " " name " "))
					print "  " $0
			}' <(git ls-files) -)
	[ -z "$gone" ] || { echo "$gone"; echo "FAILED: there is no source of that name"; exit 1; }
fi

# Versions differ in what they do with the same .clang-format: this one decides.
want=14
for tool in ${CLANG_FORMAT:-clang-format-$want clang-format}; do
	command -v "$tool" >/dev/null && break
	tool=
done
[ -n "$tool" ] || { echo "skipped: no clang-format here"; exit 77; }
"$tool" --version | grep -q "version $want\." || {
	echo "skipped: clang-format $want decides, $tool is $("$tool" --version)"
	exit 77
}

# A clone names its files; a tarball holds nothing else, but for the build tree that distcheck makes in it.
list() {
	if [ -e .git ] && command -v git >/dev/null && git ls-files >/dev/null 2>&1; then
		git ls-files -z --cached --others --exclude-standard -- '*.c' '*.h'
	else
		find . -type d \( -name '_build*' -o -name 'build*' \) -prune -o \
			\( -name '*.[ch]' ! -name '*.pb-c.[ch]' ! -name 'conf*' \) -type f -print0
	fi
}

files=()
while IFS= read -r -d '' f; do
	[ -f "$f" ] && files+=("$f")
done < <(list)
[ ${#files[@]} -gt 0 ] || { echo "FAILED: found no C files in $top_srcdir"; exit 1; }

if [ "${1:-}" = --fix ]; then
	"$tool" -i "${files[@]}"
	exit
fi
# Comments are not laid out anew, so that nothing mangles them; but they end at column 100, with tabs of 8, and so does Markdown
# outside of tables and of what is to be pasted.
wide=$(awk 'FNR == 1 { fenced = 0 }
	FILENAME ~ /\.md$/ && /^```/ { fenced = !fenced }
	FILENAME ~ /\.md$/ && (fenced || /^(\||\t|    )/) { next }
	length($0) > 40 {
		text = $0; column = 0
		while ((tab = index(text, "\t"))) {
			column += tab - 1
			column += 8 - column % 8
			text = substr(text, tab + 1)
		}
		if (column + length(text) > 100)
			print FILENAME ":" FNR ": " column + length(text) " columns"
	}' "${files[@]}" ./*.md doc/*.md)
[ -z "$wide" ] || { echo "$wide"; echo "FAILED: lines beyond column 100"; exit 1; }
# What a head can hold.
long=$(for f in "${files[@]}"; do
	case ${f#./} in daemon/* | kmod/* | tools/*) echo "$f" ;; esac
done | xargs awk 'FNR == 1 { start = 0 }
	FNR == 1001 { print "  " FILENAME ": more than 1000 lines" }
	/^[a-z].*\)$/ { name = $0 }
	/^{$/ { start = FNR }
	/^}$/ && start { if (FNR - start > 71) print "  " FILENAME ":" start ": " FNR - start - 1 " lines: " name; start = 0 }')
[ -z "$long" ] || { echo "$long"; echo "FAILED: a file has more than 1000 lines, or a function more than 70"; exit 1; }
bad=0
# All at once: a process for each takes far longer. Those that differ are looked at one by one.
said=$("$tool" --dry-run "${files[@]}" 2>&1) || { echo "FAILED: $tool: $said"; exit 1; }
differ=$(sed -n 's/^\([^:]*\):[0-9]*:[0-9]*: warning: .*/\1/p' <<<"$said" | sort -u)
for f in $differ; do
	"$tool" "$f" | cmp -s - "$f" && continue
	bad=$((bad + 1))
	echo "$f is laid out differently:"
	"$tool" "$f" | diff "$f" - | sed -n '1,12s/^/  /p'
done
[ $bad = 0 ] || {
	echo "FAILED: $bad of ${#files[@]} files; 'make format' rewrites them"
	exit 1
}
echo "${#files[@]} files"
