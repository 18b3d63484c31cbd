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
cat(jsonlite::toJSON(found, auto_unbox = TRUE, null = "null", digits = NA))
