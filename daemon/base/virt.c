// SPDX-License-Identifier: GPL-2.0-or-later
#include "daemon/base/virt.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#define FILE_BYTES 16384

/* The beginning of a file, as a string; a device tree's has NULs between its words. False: there is
 * none. */
static bool file_text(const char *root, const char *path, char text[FILE_BYTES])
{
	char at[1024];
	ssize_t n;
	int fd;

	snprintf(at, sizeof(at), "%s/%s", root, path);
	fd = open(at, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = read(fd, text, FILE_BYTES - 1);
	close(fd);
	if (n < 0)
		return false;
	text[n] = '\0';
	for (ssize_t i = 0; i + 1 < n; i++)
		if (!text[i])
			text[i] = ' ';
	return true;
}

/* What firmware says that it is: vendors and products of virtual machines only. Of vendors that
 * make both, the products. */
static bool by_firmware(const char *root, char what[VIRT_BYTES])
{
	static const char *const file[] = {"product_name", "sys_vendor", "board_vendor",
					   "bios_vendor"};
	static const char *const name[] = {"KVM",
					   "QEMU",
					   "OpenStack",
					   "KubeVirt",
					   "Amazon EC2",
					   "VMware",
					   "VMW",
					   "innotek GmbH",
					   "VirtualBox",
					   "Oracle Corporation VirtualBox",
					   "Xen",
					   "HVM domU",
					   "Bochs",
					   "Parallels",
					   "BHYVE",
					   "Hyper-V",
					   "Virtual Machine",
					   "Apple Virtualization",
					   "Google Compute Engine",
					   "Alibaba Cloud ECS",
					   "Droplet"};
	char text[FILE_BYTES], path[64];

	for (unsigned i = 0; i < sizeof(file) / sizeof(file[0]); i++) {
		snprintf(path, sizeof(path), "sys/class/dmi/id/%s", file[i]);
		if (!file_text(root, path, text))
			continue;
		text[strcspn(text, "\n")] = '\0';
		/* Amazon's own names of machines without a hypervisor: i3.metal. */
		if (strstr(text, ".metal"))
			return false;
		for (unsigned j = 0; j < sizeof(name) / sizeof(name[0]); j++) {
			if (strncmp(text, name[j], strlen(name[j])) != 0)
				continue;
			snprintf(what, VIRT_BYTES, "%.60s", text);
			return true;
		}
	}
	return false;
}

/* x86: a bit that only hypervisors set, in the line of flags. */
static bool by_processor(const char *root)
{
	char text[FILE_BYTES], *flags, *end;

	if (!file_text(root, "proc/cpuinfo", text))
		return false;
	flags = strstr(text, "\nflags");
	if (!flags)
		return false;
	end = strchr(flags + 1, '\n');
	if (end)
		*end = '\0';
	for (char *at = flags; (at = strstr(at, " hypervisor")); at++)
		if (at[strlen(" hypervisor")] == ' ' || !at[strlen(" hypervisor")])
			return true;
	return false;
}

/* Xen's own machine sees a hypervisor, and is paused by nobody. */
static bool is_xen_dom0(const char *root)
{
	char text[FILE_BYTES];

	return file_text(root, "proc/xen/capabilities", text) && strstr(text, "control_d");
}

bool virt_machine(const char *root, char what[VIRT_BYTES])
{
	char text[FILE_BYTES];

	if (is_xen_dom0(root))
		return false;
	if (by_firmware(root, what))
		return true;
	snprintf(what, VIRT_BYTES, "a hypervisor");
	if (file_text(root, "sys/hypervisor/type", text) && text[0] && text[0] != '\n') {
		text[strcspn(text, "\n")] = '\0';
		snprintf(what, VIRT_BYTES, "%.60s", text);
		return true;
	}
	if (file_text(root, "proc/device-tree/hypervisor/compatible", text)) {
		snprintf(what, VIRT_BYTES, "%.60s", text);
		return true;
	}
	if (file_text(root, "proc/sysinfo", text) && strstr(text, "VM00 Control Program"))
		return true; /* s390 */
	return by_processor(root);
}
