//! Sans-IO transfer logic: faults, plans, schedules, retry, progress.
