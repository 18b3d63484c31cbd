# What a program of a stranger does, against the server that the environment names; prints what it found as JSON.
address <- Sys.getenv("SFUMATO_ADDRESS")
key <- Sys.getenv("SFUMATO_KEY")
client <- sfumato_client(address, key)
refused <- function(asked) {
  tryCatch(
    {
      asked
      NULL
    },
    sfumato_error = function(error) list(message = conditionMessage(error), charged = error$problem$charged)
  )
}
sql <- "SELECT sex, COUNT(*) FROM people GROUP BY sex"
answer <- sfumato_ask(client, "people", sql, epsilon = "1", confidence = "0.9", whole = TRUE)
again <- sfumato_ask(client, "people", sql, epsilon = 1, confidence = 0.9, whole = TRUE)
found <- list(
  datasets = vapply(sfumato_datasets(client), function(each) each$name, ""),
  confidence = answer$confidence,
  groups = answer$rows$sex,
  whole = all(answer$rows[["count(*)"]] == round(answer$rows[["count(*)"]])),
  same = identical(again$rows, answer$rows),
  cost = again$cost,
  epsilon = as.numeric(sfumato_cost(client, "people", sql, error = 10)),
  half = sfumato_accuracy(client, "people", sql, epsilon = "1")$half_width[[1]],
  query = nrow(sfumato_ask(client, "people", "SELECT COUNT(*) FROM people", epsilon = "1")$rows),
  refused = refused(sfumato_ask(client, "people", "SELECT nothing", epsilon = "1")),
  unknown = refused(sfumato_datasets(sfumato_client(address, "wrong"))),
  foreign = refused(sfumato_datasets(sfumato_client(Sys.getenv("SFUMATO_OTHER"), key))),
  rows = refused(sfumato_rows(sfumato_client(Sys.getenv("SFUMATO_OTHER"), key), "x")),
  silent = refused(sfumato_datasets(sfumato_client("http://127.0.0.1:9", key)))
)

# What stewards do: a schema is drafted, completed, accepted and registered; months, approvals, a new name and an end.
owner <- sfumato_client(address, Sys.getenv("SFUMATO_STEWARD"))
hospital <- Sys.getenv("SFUMATO_HOSPITAL")
people <- Sys.getenv("SFUMATO_PEOPLE")
finished <- function(by, job) {
  repeat {
    found <- sfumato_progress(by, job)
    if (found$state == "failed") stop(found$note)
    if (found$state == "done") return(job)
    Sys.sleep(0.1)
  }
}
drafted <- sfumato_draft(owner, hospital)$domain
drafted$tables$icd$public <- TRUE
drafted$tables$visits$rows <- 3
cost <- list(type = "integer", minimum = 0, maximum = 1000, unknown = "clamp") # a draft leaves out a column of unique values
drafted$tables$visits$attributes <- list(cost = cost)
drafted$tables$diagnoses$rows <- 6
accepted <- sfumato_accept(owner, drafted, hospital, confirm = "identifiers")
sfumato_register(owner, "hospital_r", hospital, accepted$domain, limit = "1e6", second_budget = TRUE)
job <- sfumato_release(client, "hospital_r", "related", epsilon = 1, children = list(list(table = "visits")))
tables <- sfumato_tables(client, finished(client, job))
single <- sfumato_accept(owner, sfumato_draft(owner, people)$domain, confirm = c("bounds", "bins"))
sfumato_register(owner, "months_r", people, single$domain, "0.5 a month for 4 months", second_budget = TRUE)
sfumato_set_terms(owner, "months_r", approval_above = 0.1)
sfumato_cap(owner, "months_r", "ana", epsilon = 1)
dear <- function() sfumato_ask(client, "months_r", "SELECT COUNT(*) FROM people", epsilon = 0.25)
needed <- refused(dear())
waiting <- sfumato_approvals(client)
sfumato_approve(owner, waiting$id)
answered_once <- dear()
fields <- list(aggregates = list(list(aggregate = "count")))
again <- sfumato_query(client, "months_r", fields, epsilon = 0.25)
histogram <- sfumato_release(client, "months_r", "histogram", attributes = "sex", epsilon = 0.1)
refused(sfumato_ask(client, "months_r", "SELECT AVG(age) FROM people", epsilon = 0.12))
other_one <- sfumato_approvals(owner)$id
found$steward <- list(
  accepted = accepted$domain$accepted$by,
  zip = identical(sort(names(tables)), c("patients", "visits")) && nrow(tables$patients) > 0,
  terms = sfumato_terms(owner, "months_r")$approval_above,
  months = sfumato_dataset(client, "months_r")$by_month$months,
  needed = needed$message,
  cost = answered_once$cost,
  same = identical(again$rows, answered_once$rows),
  parquet = if (nrow(sfumato_rows(client, finished(client, histogram))) > 0) "PAR1",
  closed = identical(sfumato_refuse(owner, other_one)$closed, other_one),
  left = nrow(sfumato_approvals(owner)),
  journal = nrow(sfumato_journal(client, "months_r")),
  renamed = sfumato_rename(owner, "months_r", "quarters_r")$name,
  retired = sfumato_retire(owner, "quarters_r")$retired,
  gone = sfumato_retire(owner, "hospital_r")$retired,
  refused = refused(sfumato_approve(client, "x"))
)
cat(jsonlite::toJSON(found, auto_unbox = TRUE, null = "null", digits = NA))
