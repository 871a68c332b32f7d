#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# tests/cluster/gfs2_rest.awk, by which the scenarios gfs2-* judge what fsck.gfs2 mends: it lets what GFS2 itself leaves of a dead
# node pass, and nothing that is one line or one number more. The words are those of fsck.gfs2 3.5.0.
set -u
export LC_ALL=C
top_srcdir=${top_srcdir:-$(cd "$(dirname "$0")/.." && pwd)}
failed=0

begin='Initializing fsck
Validating resource group index.
Level 1 resource group check: Checking if all rgrp and rindex values are good.
(level 1 passed)'
cleaned='RGs: Consistent: 3   Cleaned: 1   Inconsistent: 0   Fixed: 0   Total: 4'
owed='3 blocks may need to be freed in pass 5 due to the cleaned resource groups.'
pass1="Starting pass1

41 percent complete.
Reconciling bitmaps."
freed='Block 7180 (0x1c0c) bitmap says 1 (data) but FSCK saw 0 (free)
Fixed.
Block 7181 (0x1c0d) bitmap says 1 (data) but FSCK saw 0 (free)
Fixed.
Block 7185 (0x1c11) bitmap says 1 (data) but FSCK saw 0 (free)
Fixed.'
free='RG #6188 (0x182c) free count inconsistent: is 11912 should be 11915'
inodes='RG #6188 (0x182c) Inode count inconsistent: is 216 should be 215'
updated='Resource group counts updated'
passes='reconcile_bitmaps completed in 0.004s
pass1 completed in 0.233s
Starting pass1b
pass1b completed in 0.000s
Starting pass2
pass2 completed in 0.063s
Starting pass3
pass3 completed in 0.000s
Starting pass4
pass4 completed in 0.000s
Starting check_statfs'
statfs='The statfs file is wrong:

Current statfs values:
blocks:  19944 (0x4de8)
free:    11911 (0x2e87)
dinodes: 225 (0xe1)

Calculated statfs values:
blocks:  19944 (0x4de8)
free:    11915 (0x2e8b)
dinodes: 224 (0xe0)
The statfs file was fixed.'
invalid="Found invalid inode at block 7180 (0x1c0c)
Block 7180 (0x1c0c) was 'inode', should be free.
The bitmap was fixed."
sizeless="Found unlinked inode at 7180 (0x1c0c)
Unlinked inode has zero size
Block 7180 (0x1c0c) was 'inode', should be free.
The bitmap was fixed."
# A directory to be, as pass3 finds it, and pass4 its parent's links and lost+found's.
homeless='Found unlinked directory at block 6997 (0x1b55)
Added inode #6997 (0x1b55) to lost+found
Directory relinked to lost+found'
parent='Link count inconsistent for inode 6994 (0x1b52) has 1 but fsck found 2.
Link count updated to 2 for inode 6994 (0x1b52)'
lost_found='Link count inconsistent for inode 7027 (0x1b73) has 0 but fsck found 3.
Link count updated to 3 for inode 7027 (0x1b73)'
end='check_statfs completed in 0.002s
Writing changes to disk
fsck.gfs2 complete'

# says NUMBERS REST LINES...: what there is of REST must be all that is left; "*" for something.
says() {
	local numbers=$1 want=$2 out rest
	shift 2
	out=$(printf '%s\n' "$begin" "$@" "$end" | awk -f "$top_srcdir/tests/cluster/gfs2_rest.awk")
	rest=$(tail -n +2 <<<"$out")
	if [ "$(head -n 1 <<<"$out")" != "$numbers" ] || { [ "$want" = '*' ] && [ -z "$rest" ]; } || { [ "$want" != '*' ] && [ "$rest" != "$want" ]; }; then
		printf 'FAILED: instead of %s and "%s" it says:\n%s\nof:\n' "$numbers" "$want" "$out"
		printf '%s\n' "$@"
		failed=1
	fi
}

says '0 0 0' '' "$pass1" "$passes"
says '0 0 1' '' "$pass1" "$passes" "$statfs"
says '1 0 0' '' "$pass1" "$invalid" "$passes"
says '1 0 1' '' "$pass1" "$passes" "$sizeless" "$statfs"
says '0 1 1' '' "$cleaned" "$owed" "$pass1" "$freed" "$free" "$inodes" "$updated" "$passes" "$statfs"
# Its inode alone, and two in one group.
says '0 1 0' '' "$cleaned" "$pass1" "$inodes" "$updated" "$passes"
says '0 2 0' '' "$cleaned" "$pass1" "${inodes/215/214}" "$updated" "$passes"
# In two groups, with blocks in one.
says '0 2 0' '' "${cleaned/Cleaned: 1/Cleaned: 2}" "$owed" "$pass1" "$freed" "$free" "$inodes" "$updated" "${inodes//6188/18}" "$updated" "$passes"

says '1 0 1' '' "$pass1" "$homeless" "$parent" "$lost_found" "$passes" "$statfs"
# Two: in one directory, in two.
says '2 0 0' '' "$pass1" "$homeless" "${homeless//6997/17}" "${parent//2/3}" "${lost_found//3/4}" "$passes"
says '2 0 0' '' "$pass1" "$homeless" "${homeless//6997/17}" "$parent" "${parent//6994/14}" "${lost_found//3/4}" "$passes"

says '0 0 0' 'Entry at block 1 is bad' "$pass1" 'Entry at block 1 is bad' "$passes"
says '1 0 0' 'it ended in the middle of lines that belong together' "$pass1" "${invalid%$'\n'*}" "$passes"
says '1 0 0' '*' "$pass1" "${invalid/Block 7180/Block 7181}" "$passes"
says '1 0 0' '*' "$pass1" "$passes" "${sizeless/Unlinked inode has zero size/}"
says '0 0 0' '*' "$pass1" "$passes" "${statfs%The*}"
# Blocks marked that are nobody's, without an unlinked inode that had them; one too few, one too many; a count that disagrees.
says '0 0 0' '*' "$pass1" "$freed" "$free" "$updated" "$passes"
says '0 1 0' '*' "$cleaned" "$pass1" "$freed" "$free" "$inodes" "$updated" "$passes"
says '0 1 0' '*' "$cleaned" "${owed/3/4}" "$pass1" "$freed" "$free" "$inodes" "$updated" "$passes"
says '0 1 0' '*' "$cleaned" "${owed/3/2}" "$pass1" "$freed" "$free" "$inodes" "$updated" "$passes"
says '0 1 0' '*' "$cleaned" "$owed" "$pass1" "$freed" "${free/11912/11911}" "$inodes" "$updated" "$passes"
says '0 1 0' '*' "$cleaned" "$owed" "$pass1" "$freed" "$inodes" "$updated" "$passes"
says '0 0 0' '*' "$cleaned" "$owed" "$pass1" "$freed" "$free" "$updated" "$passes"
says '0 0 0' '*' "$cleaned" "$pass1" "${inodes/216/214}" "$updated" "$passes"
says '0 1 0' '*' "$cleaned" "$owed" "$pass1" "${freed/1 (data)/3 (inode)}" "$free" "$inodes" "$updated" "$passes"
says '0 1 0' '*' "$cleaned" "$owed" "$pass1" "${freed/0 (free)/1 (data)}" "$free" "$inodes" "$updated" "$passes"
says '0 0 0' '*' "${cleaned/Inconsistent: 0/Inconsistent: 1}" "$pass1" "$inodes" "$updated" "$passes"
says '0 1 0' '*' "$cleaned" "$owed" "$pass1" "$freed" "$free" "$inodes" "$passes"
# A directory whose entry was lost: its parent had counted it. Links that are missing, or too many, elsewhere; without one at all.
says '1 0 0' '*' "$pass1" "$homeless" "$lost_found" "$passes"
says '1 0 0' '*' "$pass1" "$homeless" "$parent" "${parent//6994/14}" "$lost_found" "$passes"
says '1 0 0' '*' "$pass1" "$homeless" "$parent" "${lost_found//3/4}" "$passes"
says '1 0 0' '*' "$pass1" "$homeless" "$parent" "$passes"
says '0 0 0' '*' "$pass1" "$parent" "$lost_found" "$passes"
says '0 0 0' '*' "$pass1" "${homeless%$'\n'*}" "$parent" "$lost_found" "$passes"
says '1 0 0' '*' "$pass1" "$homeless" "${parent%$'\n'*}" "$lost_found" "$passes"
[ $failed = 0 ]
