//! The managed transfer service: REST API, task store, scheduler, web page.
