/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Nobody else uses the members (use.c). */
#ifndef DDRAID_CORE_CLUSTER_USE_H
#define DDRAID_CORE_CLUSTER_USE_H

#include "daemon/core/door.h"

enum use_state {
	USE_NONE,   /* this node does not assemble the array, nor takes part in it */
	USE_LOOK,   /* reads who uses the array, again and again until nobody does */
	USE_CLAIM,  /* writes that it does */
	USE_VERIFY, /* waits for who may have claimed at the same time, then reads again */
	USE_HELD,   /* may use it, as long as it is renewed */
	USE_GIVEN,  /* has written that nobody uses it any more */
};

/* Claims of others that are watched at once: each device has one now, and had one a moment ago.
 * With a bound that they can reach, what lives that died one after the other have left would never
 * be waited for to its end. */
#define USE_WATCHED (2u * DDR_MAX_DEVS)
struct use_watch {
	struct useblock last;
	uint64_t since_us;  /* nothing of it has changed since */
	bool shown;         /* a device showed it in the last round of reads */
	bool unseen;        /* none did in the round before */
	uint32_t found_on;  /* 1 + a device that has it and is too slow for a round; 0 = none */
	bool alive;         /* something has changed while we looked */
	bool probed, ended; /* asked; its process has ended for certain */
};

/* HELD: on the way to a lease. */
enum use_check {
	CHECK_READ,  /* is somebody else there? */
	CHECK_WRITE, /* claims anew */
	CHECK_AGAIN, /* waits for who may have done so at the same time, then reads again */
	CHECK_DONE,  /* renews */
};

struct use_dev {
	bool busy, in_round, reading;
	bool seen, ours, taken;   /* read last: was it? The run's claim; another's, or none */
	bool odd;                 /* it shows that another holds the array, or has held it */
	bool wrote;               /* our claim, in the last round of writes */
	bool unread;              /* connected since the claim was verified */
	bool gone;                /* the request under way is of the connection before */
	bool lost;                /* our last renewal failed: it may land yet */
	bool failed;              /* the last request ended with an error */
	uint64_t asked_us;        /* when the last one that was answered began */
	bool late;                /* the read under way counts for nothing: nobody waits for it */
	bool slow[2];             /* its last write, its last read took longer than a claim may */
	uint64_t sent_us;         /* when the request under way began */
	uint64_t answered_us;     /* when the last one ended well */
	uint64_t held_us;         /* when the last write of our claim began that landed; 0 = none */
	struct useblock got, was; /* as read last, and before */
	struct useblock met;      /* another's, as it was renewed last */
	struct batch batch;
	struct iovec iov;
	uint8_t (*buf)[DDR_BLOCK_BYTES];
};

struct use {
	enum use_state state;
	uint64_t claim;    /* names this run of the array; 0 = not known yet */
	uint32_t pending;  /* requests of the round under way */
	bool reads;        /* that is of reads */
	bool round_over;   /* its end was not looked at yet */
	uint64_t round_us; /* when it began */
	uint64_t began_us; /* this node is to assemble the array since then */
	uint64_t look_us;  /* the reads that found nobody began then */
	uint64_t lease_us; /* until then I/O may go on */
	uint64_t late_us;  /* a renewal landed then without a lease, maybe over another's claim */
	uint64_t next_us;  /* the next one is not due before */
	uint64_t hurried_us;
	uint32_t tries; /* claims that came to nothing */
	bool unclaimed; /* the last one did: another may be able to write */
	bool given;     /* this node wrote last that nobody uses it */
	bool adopted;   /* the claim is another's, and was not read since it was told */
	enum use_check check;
	uint64_t checked_us; /* DONE: the reads that found the own claim began then */
	struct use_dev dev[DDR_MAX_DEVS];
	struct use_watch watch[USE_WATCHED];
	uint32_t watches;
	bool too_many;              /* claims, to watch them all */
	uint64_t over[USE_WATCHED]; /* claims that the last look has waited for */
	uint32_t overs;
	bool refused;
	char why[640];
};

int use_alloc(struct engine *e);
void use_free(struct engine *e);
/* The next incarnation looks anew; it knows the claim again. */
void use_restart(struct engine *e, const struct use *old);
void use_begin(struct engine *e); /* leads a round: has somebody in it a claim? */
void use_dev_up(struct engine *e, uint32_t dev);
bool use_taken(struct engine *e); /* this node, which assembles the array, may go on */
bool use_fails(const struct engine *e, uint32_t dev);        /* also its use block can't be used */
uint64_t use_wrote_us(const struct engine *e, uint32_t dev); /* likewise, a write */
uint64_t use_answered_us(const struct engine *e, uint32_t dev); /* what was sent then, has been */
void use_hurry(struct engine *e);                               /* renews now */
bool use_lease(const struct engine *e);
/* There was no lease for a while since then. */
bool use_lapsed(const struct engine *e,
		uint64_t since_us);               /* as far as the use blocks go, I/O may go on */
void use_adopt(struct engine *e, uint64_t claim); /* the leader's */
bool use_given_back(struct engine *e);            /* the last node leaves */
void use_advance(struct engine *e);
/* EV_PROBED. */
void use_probed(struct engine *e, const struct event *ev);

#endif
