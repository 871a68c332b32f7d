// SPDX-License-Identifier: GPL-2.0-or-later
/* Which machines count as virtual ones: by files as their kernels show them. */
#include "daemon/base/virt.h"

#include <stdlib.h>
#include <sys/stat.h>

#include "tests/lib/test.h"

static char root[64];

static void begin(void)
{
	strcpy(root, "/tmp/test_virt-XXXXXX");
	CHECK(mkdtemp(root));
}

static void end(void)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -r %s", root);
	CHECK(!system(command));
}

static void put(const char *path, const char *text, size_t bytes)
{
	char at[256];
	FILE *f;

	snprintf(at, sizeof(at), "%s/%s", root, path);
	for (char *slash = at + strlen(root) + 1; (slash = strchr(slash, '/')); slash++) {
		*slash = '\0';
		mkdir(at, 0700);
		*slash = '/';
	}
	f = fopen(at, "w");
	CHECK(f && fwrite(text, 1, bytes, f) == bytes && !fclose(f));
}

static void is(const char *want)
{
	char what[VIRT_BYTES] = "none";

	CHECK_EQ_INT(virt_machine(root, what), want != NULL);
	if (want)
		CHECK_EQ_STR(what, want);
}

static void alone(const char *path, const char *text, const char *want)
{
	begin();
	put(path, text, strlen(text));
	is(want);
	end();
}

TEST(nothing_to_see_is_no_virtual_machine)
{
	begin();
	is(NULL);
	end();
}

TEST(firmware_says_so)
{
	alone("sys/class/dmi/id/sys_vendor", "QEMU\n", "QEMU");
	alone("sys/class/dmi/id/product_name", "KVM\n", "KVM");
	alone("sys/class/dmi/id/sys_vendor", "VMware, Inc.\n", "VMware, Inc.");
	alone("sys/class/dmi/id/product_name", "VirtualBox\n", "VirtualBox");
	alone("sys/class/dmi/id/product_name", "Google Compute Engine\n", "Google Compute Engine");
	alone("sys/class/dmi/id/bios_vendor", "Amazon EC2\n", "Amazon EC2");
	/* A vendor that makes both. */
	alone("sys/class/dmi/id/sys_vendor", "Microsoft Corporation\n", NULL);
	alone("sys/class/dmi/id/product_name", "Virtual Machine\n", "Virtual Machine");
}

TEST(other_firmware_does_not)
{
	alone("sys/class/dmi/id/sys_vendor", "Dell Inc.\n", NULL);
	alone("sys/class/dmi/id/product_name", "PowerEdge R740 KVM\n", NULL);
	alone("sys/class/dmi/id/sys_vendor", "", NULL);
	begin();
	put("sys/class/dmi/id/product_name", "i3.metal\n", 9);
	put("sys/class/dmi/id/sys_vendor", "Amazon EC2\n", 11);
	is(NULL);
	end();
}

TEST(the_processor_says_so)
{
	alone("proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu sse hypervisor lahf_lm\n\n",
	      "a hypervisor");
	alone("proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu hypervisor\nbugs\t\t: none\n",
	      "a hypervisor");
	alone("proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu hypervisor", "a hypervisor");
	alone("proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu sse lahf_lm\nbugs\t: hypervisor x\n",
	      NULL);
	alone("proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu hypervisor_x sse\n", NULL);
	alone("proc/cpuinfo", "", NULL);
}

TEST(the_kernel_says_so)
{
	alone("sys/hypervisor/type", "xen\n", "xen");
	alone("sys/hypervisor/type", "\n", NULL);
	alone("proc/sysinfo", "Manufacturer: IBM\nVM00 Control Program: KVM/Linux\n",
	      "a hypervisor");
	alone("proc/sysinfo", "Manufacturer: IBM\nLPAR Name: L1\n", NULL);
	begin();
	put("proc/device-tree/hypervisor/compatible", "xen,xen-4.14\0xen,xen", 21);
	is("xen,xen-4.14 xen,xen");
	end();
}

TEST(who_runs_xen_is_paused_by_nobody)
{
	begin();
	put("sys/hypervisor/type", "xen\n", 4);
	put("proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu hypervisor\n", 39);
	is("xen");
	put("proc/xen/capabilities", "control_d\n", 10);
	is(NULL);
	put("proc/xen/capabilities", "", 0);
	is("xen");
	end();
}
