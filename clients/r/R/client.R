# A client of a Sfumato server.  What is charged is asked under an Idempotency-Key, and asked again under the same one
# where nobody answered or the server was busy, so that a question is never charged twice.

ATTEMPTS <- 4
AGAIN <- c(429, 502, 503, 504)
LONGEST_WAIT <- 10 # seconds

#' Return a client of the server at an address, for the key that a steward issued.  ca is a file with the certificates of
#' the only authorities to trust, in PEM; the default is the file that SSL_CERT_FILE, REQUESTS_CA_BUNDLE or CURL_CA_BUNDLE
#' names, else the certificates of the system.  proxy is http://HOST:PORT, or http://USER:PASSWORD@HOST:PORT; by default
#' HTTPS_PROXY and NO_PROXY decide, unless the server is on this machine
sfumato_client <- function(address, key, timeout = 60, ca = NULL, proxy = NULL) {
  if (!grepl("^https?://", address)) stop("an address of a server begins with http:// or https://")
  if (!grepl("^[\x21-\x7e]+$", key)) stop("a key is one word of printable ASCII; copy it again")
  if (!is.null(ca) && grepl("^http://", address)) stop("the address begins with http://, which uses no certificates")
  if (is.null(ca)) ca <- bundle_of_environment()
  if (!is.null(ca) && !file.exists(ca)) stop("there is no file of certificates ", ca)
  if (is.null(proxy) && grepl("^https?://(localhost|127[.][0-9.]+|\\[::1\\])(:|/|$)", address)) proxy <- "" # none
  options <- c(list(), if (!is.null(ca)) list(cainfo = path.expand(ca)), if (!is.null(proxy)) list(proxy = proxy))
  structure(
    list(address = sub("/+$", "", address), key = key, timeout = timeout, options = options),
    class = "sfumato_client"
  )
}

# The first file of certificates that the environment names; NULL for none.
bundle_of_environment <- function() {
  named <- Filter(nzchar, Sys.getenv(c("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")))
  if (length(named)) named[[1]] else NULL
}

#' All datasets, with what is public about them
sfumato_datasets <- function(client) exchange(client, "GET", "/v1/datasets")$datasets

#' One dataset and its public domain, or the schema of its tables
sfumato_dataset <- function(client, name) exchange(client, "GET", dataset_path(name))

#' What is left of the budget
sfumato_budget <- function(client, name) exchange(client, "GET", dataset_path(name, "/budget"))

#' How wrong the answers would be at a loss, as a data frame; spends nothing
sfumato_accuracy <- function(client, name, sql, epsilon = NULL, delta = NULL, rho = NULL, confidence = NULL) {
  body <- stated(sql = sql, loss = loss(epsilon, delta, rho), confidence = confidence)
  found <- exchange(client, "POST", dataset_path(name, "/cost"), body)$expected
  parts <- c("name", "standard_error", "half_width", "measure")
  data.frame(lapply(stats::setNames(parts, parts), function(part) sapply(found, function(each) each[[part]])))
}

#' The epsilon that keeps every answer within an error, as text; spends nothing
sfumato_cost <- function(client, name, sql, error, confidence = NULL) {
  body <- stated(sql = sql, error = as_text(error), confidence = confidence)
  exchange(client, "POST", dataset_path(name, "/cost"), body)$epsilon
}

#' Answer a statement for a loss
sfumato_ask <- function(client, name, sql, epsilon = NULL, delta = NULL, rho = NULL, confidence = NULL, whole = NULL,
                        truncation = NULL, retry_key = new_retry_key()) {
  body <- stated(
    sql = sql, loss = loss(epsilon, delta, rho), confidence = confidence, whole = whole, truncation = truncation
  )
  answered(exchange(client, "POST", dataset_path(name, "/query"), body, retry_key))
}

answered <- function(found) {
  if (is.null(found$rows) || is.null(found$columns)) stop(foreign(200))
  answer <- list(
    rows = as_rows(found), guarantee = found$guarantee, cost = found$cost, confidence = found$confidence,
    remarks = unlist(found$remarks)
  )
  structure(answer, class = "sfumato_answer")
}

#' Answer a question stated as a list of aggregates, groups (by) and conditions (where), for a loss
sfumato_query <- function(client, name, query, epsilon = NULL, delta = NULL, rho = NULL, confidence = NULL, whole = NULL,
                          truncation = NULL, retry_key = new_retry_key()) {
  for (part in intersect(names(query), c("aggregates", "by", "where"))) query[[part]] <- as.list(query[[part]])
  body <- stated(
    query = query, loss = loss(epsilon, delta, rho), confidence = confidence, whole = whole, truncation = truncation
  )
  answered(exchange(client, "POST", dataset_path(name, "/query"), body, retry_key))
}

#' Ask for a synthetic table in the background; returns the id of the job.  Of a dataset of several tables the method is
#' "related", and children is a list of lists that name the tables of which a person has several rows
sfumato_release <- function(client, name, method, attributes = NULL, epsilon = NULL, delta = NULL, rho = NULL,
                            children = NULL) {
  body <- stated(
    method = method, attributes = if (is.null(attributes)) NULL else as.list(attributes), children = children,
    loss = loss(epsilon, delta, rho)
  )
  exchange(client, "POST", dataset_path(name, "/releases"), body)$job
}

#' Ask for an anonymised table in the background (stewards); returns the id of the job
sfumato_anonymize <- function(client, name, method, quasi, k, ...) {
  body <- stated(method = method, quasi = as.list(quasi), k = k, ...)
  exchange(client, "POST", dataset_path(name, "/anonymizations"), body)$job
}

#' How far a job is
sfumato_progress <- function(client, job) exchange(client, "GET", job_path(job))

#' The rows of a finished job, as a data frame
sfumato_rows <- function(client, job) {
  reply <- sent(client, "GET", paste0(job_path(job), "/rows"))
  if (media(reply) != "text/csv") stop(foreign(httr2::resp_status(reply)))
  utils::read.csv(text = httr2::resp_body_string(reply, "UTF-8"), check.names = FALSE, stringsAsFactors = FALSE)
}

#' The tables of a finished job that belong together, as data frames by their names, with those of their codebook and guarantee
#' left in the ZIP file, which is kept where path says
sfumato_tables <- function(client, job, path = tempfile(fileext = ".zip")) {
  reply <- sent(client, "GET", paste0(job_path(job), "/rows?format=csv"))
  if (media(reply) != "application/zip") stop(foreign(httr2::resp_status(reply)))
  writeBin(httr2::resp_body_raw(reply), path)
  held <- utils::unzip(path, list = TRUE)$Name
  named <- held[grepl("[.]csv$", held)]
  folder <- tempfile("sfumato")
  on.exit(unlink(folder, recursive = TRUE))
  utils::unzip(path, files = named, exdir = folder)
  read <- function(each) utils::read.csv(file.path(folder, each), check.names = FALSE, stringsAsFactors = FALSE)
  stats::setNames(lapply(named, read), sub("[.]csv$", "", basename(named)))
}

#' Entries of the journal, as a data frame: for stewards all, for analysts their own
sfumato_journal <- function(client, name) {
  entries <- list()
  after <- 0
  while (!is.null(after)) {
    page <- exchange(client, "GET", dataset_path(name, paste0("/journal?limit=1000&after=", as_text(after))))
    entries <- c(entries, page$entries)
    after <- page$`next`
  }
  as_frame(entries, c("number", "time", "kind", "family", "method", "analyst", "statement", "asked", "cost", "hash"))
}

#' Releases that wait for a second steward's approval, or have one that is not used, as a data frame
sfumato_approvals <- function(client) {
  found <- exchange(client, "GET", "/v1/approvals")$approvals
  as_frame(found, c("id", "dataset", "asked_by", "asked", "question", "cost", "approved_by", "expires"))
}

#' Approve one release, once (stewards); nobody approves what they asked for
sfumato_approve <- function(client, id) exchange(client, "POST", approval_path(id), empty())

#' Refuse a release that waits, or take back an approval that was not used (stewards)
sfumato_refuse <- function(client, id) exchange(client, "DELETE", approval_path(id))

#' Describe a table, or the tables of a folder or database, off the data (stewards); registers nothing
sfumato_draft <- function(client, source, unit = NULL, name = NULL) {
  exchange(client, "POST", "/v1/drafts", stated(source = source, unit = unit, name = name))
}

#' Accept a description as it stands, in the name of the key's holder (stewards); registers nothing. `confirm` names the kinds
#' of findings that were looked at, such as "bounds"
sfumato_accept <- function(client, domain, source = NULL, confirm = NULL) {
  exchange(client, "POST", "/v1/acceptances", stated(domain = domain, source = source, confirm = as.list(confirm)))
}

#' Register a table with its accepted domain, or a folder or database with its schema (stewards); the limit is the most that
#' may ever be released, or in each of some months, such as "0.5 a month for 12 months"
sfumato_register <- function(client, name, source, domain, limit, second_budget = NULL) {
  body <- stated(name = name, source = source, domain = domain, limit = as_text(limit), second_budget = second_budget)
  exchange(client, "POST", "/v1/datasets", body)
}

#' Call a dataset otherwise (stewards)
sfumato_rename <- function(client, name, to) exchange(client, "PUT", dataset_path(name, "/name"), list(name = to))

#' Release nothing more of a dataset, or go on (stewards)
sfumato_retire <- function(client, name, retired = TRUE) {
  exchange(client, "PUT", dataset_path(name, "/retirement"), list(retired = retired))
}

#' On which terms a dataset is asked (stewards)
sfumato_terms <- function(client, name) exchange(client, "GET", dataset_path(name, "/terms"))

#' Set all of them: what is not said is lifted (stewards)
sfumato_set_terms <- function(client, name, granted_only = FALSE, default_cap = NULL, most = NULL, approval_above = NULL) {
  limits <- lapply(stated(default_cap = default_cap, most = most, approval_above = approval_above), as_text)
  exchange(client, "PUT", dataset_path(name, "/terms"), c(list(granted_only = granted_only), limits))
}

#' Set what an analyst may spend; without a loss, lift the cap (stewards)
sfumato_cap <- function(client, name, analyst, epsilon = NULL, delta = NULL, rho = NULL) {
  spent <- loss(epsilon, delta, rho)
  exchange(client, "PUT", dataset_path(name, "/caps"), stated(analyst = analyst, loss = if (length(spent)) spent))
}

print.sfumato_answer <- function(x, ...) {
  print(x$rows, ...)
  cat("Cost:", x$cost, "\n")
  cat(x$guarantee, "\n")
  invisible(x)
}

# Documents as rows; what one lacks, or has nothing in, is missing.
as_frame <- function(found, parts) {
  value <- function(each, part) if (is.null(each[[part]])) NA else each[[part]]
  columns <- lapply(stats::setNames(parts, parts), function(part) unlist(lapply(found, value, part)))
  if (length(found)) data.frame(columns, stringsAsFactors = FALSE) else data.frame()
}

as_rows <- function(found) {
  groups <- unlist(found$groups)
  labels <- lapply(seq_along(groups), function(place) {
    vapply(found$rows, function(row) as.character(row$key[[place]]), "")
  })
  names(labels) <- groups
  numbers <- list()
  endings <- c(estimate = "", standard_error = "_error", low = "_low", high = "_high")
  for (place in seq_along(found$columns)) {
    for (part in names(endings)) {
      numbers[[paste0(found$columns[[place]], endings[[part]])]] <-
        vapply(found$rows, function(row) as.numeric(row$values[[place]][[part]]), 0)
    }
  }
  data.frame(c(labels, numbers), check.names = FALSE, stringsAsFactors = FALSE)
}

dataset_path <- function(name, ending = "") paste0("/v1/datasets/", utils::URLencode(name, reserved = TRUE), ending)
approval_path <- function(id) paste0("/v1/approvals/", utils::URLencode(id, reserved = TRUE))
job_path <- function(job) paste0("/v1/releases/", utils::URLencode(job, reserved = TRUE))
new_retry_key <- function() paste(as.character(openssl::rand_bytes(16)), collapse = "")
as_text <- function(number) if (is.character(number)) number else format(number, digits = 15, scientific = FALSE)
empty <- function() structure(list(), names = character())
stated <- function(...) Filter(Negate(is.null), list(...))
loss <- function(epsilon, delta, rho) lapply(stated(epsilon = epsilon, delta = delta, rho = rho), as_text)

exchange <- function(client, method, path, body = NULL, retry_key = NULL) {
  reply <- sent(client, method, path, body, retry_key)
  found <- if (media(reply) == "application/json") read_json(reply) else NULL
  if (!is.list(found)) stop(foreign(httr2::resp_status(reply)))
  found
}

# Send, and again where that is safe.
sent <- function(client, method, path, body = NULL, retry_key = NULL) {
  request <- httr2::request(paste0(client$address, path))
  request <- httr2::req_method(request, method)
  request <- httr2::req_headers(request, Authorization = paste("Bearer", client$key))
  request <- httr2::req_timeout(request, client$timeout)
  request <- httr2::req_options(request, !!!client$options)
  request <- httr2::req_error(request, is_error = function(reply) FALSE)
  if (!is.null(body)) request <- httr2::req_body_json(request, body, auto_unbox = TRUE, digits = NA)
  if (!is.null(retry_key)) request <- httr2::req_headers(request, `Idempotency-Key` = retry_key)
  safe <- !is.null(retry_key) || method == "GET" || endsWith(path, "/cost")
  for (attempt in seq_len(ATTEMPTS)) {
    last <- !safe || attempt == ATTEMPTS
    wait <- 0.1 * 2^(attempt - 1)
    reply <- tryCatch(httr2::req_perform(request), error = identity)
    if (inherits(reply, "error")) {
      reason <- conditionMessage(if (is.null(reply$parent)) reply else reply$parent)
      if (grepl("certificate|CAfile", reason)) stop(untrusted(client$address, reason))
      if (last) {
        detail <- paste0(reason, "; check the address, and that the server runs and can be reached from here")
        stop(refusal(list(title = paste("no reply from", client$address), detail = detail, status = 0)))
      }
    } else {
      status <- httr2::resp_status(reply)
      if (status < 300) return(reply)
      if (last || !(status %in% AGAIN)) stop(refusal(problem(reply)))
      asked <- suppressWarnings(as.numeric(httr2::resp_header(reply, "retry-after")))
      if (length(asked) == 1 && !is.na(asked)) wait <- max(wait, min(asked, LONGEST_WAIT))
    }
    Sys.sleep(wait)
  }
}

untrusted <- function(address, reason) {
  remedy <- paste0(
    "If your organization signs its own certificates, pass the file of its authority, such as ca = \"authority.pem\", ",
    "or name the file in SSL_CERT_FILE."
  )
  if (grepl("expired", reason)) remedy <- "Ask who runs the server to renew its certificate, and check the clock of this machine."
  if (grepl("subject name", reason)) remedy <- "Use the address that the certificate names, or ask who runs the server."
  title <- paste("the certificate of", address, "is not trusted")
  refusal(list(title = title, detail = paste0(sub("[.]$", "", reason), ". ", remedy), status = 0))
}

# The media type of a reply; empty where it names none.
media <- function(reply) {
  found <- httr2::resp_header(reply, "content-type")
  if (is.null(found)) "" else tolower(trimws(sub(";.*", "", found)))
}

read_json <- function(reply) {
  text <- tryCatch(httr2::resp_body_string(reply, "UTF-8"), error = function(error) "")
  tryCatch(jsonlite::fromJSON(text, simplifyVector = FALSE), error = function(error) NULL)
}

problem <- function(reply) {
  found <- if (media(reply) == "application/problem+json") read_json(reply) else NULL
  status <- httr2::resp_status(reply)
  if (is.list(found)) found else list(title = "no problem document", detail = paste("status", status), status = status)
}

foreign <- function(status) {
  detail <- "another program answers there; check the address"
  refusal(list(title = "no reply of a Sfumato server", detail = detail, status = status))
}

refusal <- function(problem) {
  listed <- vapply(problem$errors, function(each) paste0(each$place, ": ", each$reason), "")
  said <- if (length(listed)) paste(listed, collapse = "; ") else problem$detail
  message <- paste0(problem$title, ": ", said)
  structure(list(message = message, call = NULL, problem = problem), class = c("sfumato_error", "error", "condition"))
}
