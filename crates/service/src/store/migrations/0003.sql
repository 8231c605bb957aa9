CREATE INDEX tasks_completed ON tasks (completed) WHERE completed IS NOT NULL;
