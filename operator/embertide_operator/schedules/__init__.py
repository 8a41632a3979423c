"""The schedules: what each did, and the EmbeddingSchedule beside its CronJob that shows it."""
