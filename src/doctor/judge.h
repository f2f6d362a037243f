/* The pure half of the report, apart so that tests can feed it. */
#pragma once

#include "doctor/doctor.h"
#include "doctor/probe.h"

/* A row from the table and what its probe found; the strings are the row's own. */
struct doctor_row doctor_row_of(const struct check *check, const struct finding *finding);

/* Sets report->native from the rows. */
void doctor_judge(struct doctor_report *report);
