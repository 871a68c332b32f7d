# SPDX-License-Identifier: GPL-2.0-or-later
#
# Reads what `fsck.gfs2 -y` says (with a new line for each \r), and prints three numbers: blocks of inodes to be, unlinked inodes,
# counts of the file system that were off. Then, line by line, what it should not have said. All of
# this GFS2 itself may leave of a node that dies, whatever its disk does:
#
# - Counts. Journal recovery adds the dead node's counts of free blocks to the common ones without their lock
#   (fs/gfs2/recovery.c, update_statfs_inode).
# - An inode to be. Its block is allocated in one transaction, written in another and linked in a third (fs/gfs2/inode.c,
#   alloc_dinode, init_dinode and link_dinode): it is marked, but no inode yet, or one of size 0; and in no directory. One of a
#   directory is complete when it is written: fsck.gfs2 puts it into lost+found, which it makes, and takes one from the links of the
#   directory that it was to be in. But what would have put it there had added one (fs/gfs2/dir.c, gfs2_dir_add): so just as many turn
#   out to be missing there. Where a directory's entry was lost, none is.
# - An unlinked inode. One transaction takes it out of its directory, others free it (fs/gfs2/super.c,
#   evict_unlinked_inode): its block is marked as unlinked, and it has all of its blocks. The next node that allocates beside it
#   would free it; fsck.gfs2 does. It reads from the inode how many blocks there are to be freed: just so many must turn out to be nobody's.

function other(line) { rest = rest line "\n" }

/^ *$/ { next }

/^Found invalid inode at block [0-9]+ \(0x[0-9a-f]+\)$/ { unborn = $6; unborns++; next }
/^Found unlinked inode at [0-9]+ \(0x[0-9a-f]+\)$/ { sizeless = $5; unborns++; next }
sizeless && /^Unlinked inode has zero size$/ { unborn = sizeless; sizeless = ""; next }
unborn && $0 ~ "^Block " unborn " .* was .inode., should be free\\.$" { of = unborn; unborn = ""; next }
of && /^The bitmap was fixed\.$/ { of = ""; next }

/^Found unlinked directory at block [0-9]+ \(0x[0-9a-f]+\)$/ { homeless = $6; next }
homeless && $0 ~ "^Added inode #" homeless " \\(0x[0-9a-f]+\\) to lost\\+found$" { added = homeless; homeless = ""; next }
added && /^Directory relinked to lost\+found$/ { added = ""; unborns++; dirs++; next }
dirs && /^Link count inconsistent for inode [0-9]+ \(0x[0-9a-f]+\) has [0-9]+ but fsck found [0-9]+\.$/ { of_links = $6; has = $9; found = $13 + 0; next }
of_links && $0 ~ "^Link count updated to " found " for inode " of_links " " {
	if (has)
		parents += found - has
	else
		lost_found = found
	of_links = ""
	next
}

/^RGs: Consistent: [0-9]+   Cleaned: [1-9][0-9]*   Inconsistent: 0   Fixed: 0   Total: [0-9]+$/ { cleaned += $5; next }
cleaned && /^[0-9]+ blocks may need to be freed in pass 5 due to the cleaned resource groups\.$/ { owed += $1; next }
cleaned && /^Block [0-9]+ \(0x[0-9a-f]+\) bitmap says 1 \(data\) but FSCK saw 0 \(free\)$/ { nobodys = 1; next }
nobodys && /^Fixed\.$/ { nobodys = 0; freed++; next }
cleaned && /^RG #[0-9]+ \(0x[0-9a-f]+\) free count inconsistent: is [0-9]+ should be [0-9]+$/ { counted += $11 - $8; updated = 1; next }
cleaned && /^RG #[0-9]+ \(0x[0-9a-f]+\) Inode count inconsistent: is [0-9]+ should be [0-9]+$/ && $8 > $11 { unlinked += $8 - $11; groups++; updated = 1; next }
updated && /^Resource group counts updated$/ { updated = 0; next }

/^The statfs file is wrong:$/ { lines = 9; next }
lines == 9 && /^Current statfs values:$/ || lines == 5 && /^Calculated statfs values:$/ { lines--; next }
lines > 1 && /^(blocks|free|dinodes): +[0-9]+ \(0x[0-9a-f]+\)$/ { lines--; next }
lines == 1 && /^The statfs file was fixed\.$/ { lines = 0; counts++; next }

/^(Initializing fsck|Validating resource group index\.|Reconciling bitmaps\.|Writing changes to disk|fsck\.gfs2 complete)$/ { next }
/^Level 1 resource group check: Checking if all rgrp and rindex values are good\.$/ || /^\(level 1 passed\)$/ { next }
/^Starting (pass[1-4]|pass1b|check_statfs)$/ || /^(pass[1-4]|pass1b|check_statfs|reconcile_bitmaps) completed in [0-9hms.]+ *$/ { next }
/^ *[0-9]+ percent complete\. *$/ { next }

{ other($0) }

END {
	if (sizeless || unborn || of || nobodys || updated || lines || homeless || added || of_links)
		other("it ended in the middle of lines that belong together")
	if (owed != freed || counted != freed || cleaned != groups)
		other(sprintf("%d resource groups with unlinked inodes, and %d with fewer inodes; their %d blocks; nobody's were %d, counted %d",
			cleaned, groups, owed, freed, counted))
	if (dirs && (parents != dirs || lost_found != 2 + dirs))
		other(sprintf("%d directories in lost+found, which has %d links; missing in others: %d", dirs, lost_found, parents))
	printf "%d %d %d\n%s", unborns, unlinked, counts, rest
}
