//! Rules that map identities, and what mapping programs answer.

use whimbrel_proto::mapping::command::{input, output};
use whimbrel_proto::mapping::{Document, Expression, Identity, RawRule, Template, Word, documents, in_domain, words};
use whimbrel_trust::mapping::mapper;

/// Five parts with NUL between them: a file of documents, a name that is mapped, an expression, an output, and a program's answer.
pub fn mapping(data: &[u8]) {
    let mut parts = data.split(|&byte| byte == 0);
    let mut next = || parts.next().unwrap_or_default();
    let file = next();
    let [name, pattern, account] = [next(), next(), next()].map(|part| String::from_utf8_lossy(part).into_owned());
    let fields = [("id".to_owned(), "i-1".to_owned()), ("username".to_owned(), name.clone())];
    let identity = Identity(&fields);
    check_documents(file, identity);
    check_rule(&name, &pattern, &account, identity);
    check_answer(next(), identity);
}

fn check_documents(file: &[u8], identity: Identity<'_>) {
    let Ok(read) = documents(file) else { return };
    for document in read {
        let json = serde_json::to_vec(&document).expect("documents can be written");
        assert_eq!(documents(&json).as_deref(), Ok(&[document.clone()][..]));
        let mappings = match document {
            Document::Expressions { mappings } => mappings,
            Document::Command { command } => {
                check_command(&command);
                continue;
            }
        };
        match mapper(&mappings) {
            Ok(mapper) => {
                let all = mapper.all(&[identity]);
                if let (Ok(first), Ok(all)) = (mapper.first(identity), all) {
                    assert_eq!(first.as_ref(), all.first().map(|mapped| &mapped.account));
                    all.iter().for_each(|mapped| check_account(&mapped.account));
                }
            }
            Err(fault) => assert!(fault.detail.contains("rule") && !fault.detail.contains('\n')),
        }
    }
}

/// What is started is a program by its whole path, with the words that were written.
fn check_command(command: &[Word]) {
    match words(command) {
        Ok(words) => {
            assert!(words[0].starts_with('/') && words.len() == command.len());
            assert!(words.iter().all(|word| !word.contains('\0')));
        }
        Err(error) => assert!(error.to_string().contains("absolute path")),
    }
}

fn check_rule(name: &str, pattern: &str, account: &str, identity: Identity<'_>) {
    let rule = |pattern: &str, literal| {
        let rule =
            RawRule { source: "{username}".into(), pattern: pattern.into(), output: "x".into(), ..RawRule::default() };
        mapper(&[RawRule { literal, ..rule }]).map(|mapper| mapper.first(identity))
    };
    match (Expression::parse(pattern), rule(pattern, false)) {
        (Ok(expression), Ok(found)) => {
            assert!(Template::parse(&format!("{{{}}}", expression.groups()), expression.groups()).is_err());
            let plain = !pattern.contains(['.', '?', '*', '|', '(', '\\']);
            if let (true, Ok(found)) = (plain, found) {
                assert_eq!(found.is_some(), name == pattern, "what has no meaning stands for itself");
            }
        }
        (Err(_), Ok(_)) => panic!("{pattern:?} is no expression"),
        (_, Err(fault)) => assert!(fault.detail.contains("rule 1")),
    }
    if let Some(account) = in_domain(name, account) {
        assert!(name.starts_with(account) && !account.contains('@'));
        check_account(account);
    }
    if let Ok(Ok(found)) = rule(pattern, true) {
        assert_eq!(found.is_some(), name == pattern, "a literal fits itself");
    }
    let groups = ["{0}{username}".to_owned(), String::new()].map(Some);
    if let Ok(filled) = Template::parse(account, 2).map(|template| template.fill(identity, &groups))
        && !account.contains('{')
    {
        assert_eq!(filled.as_deref(), Ok(account));
    }
}

fn check_answer(answer: &[u8], identity: Identity<'_>) {
    assert!(input(&[identity]).is_ok() && input(&[identity, identity]).is_err() && input(&[Identity(&[])]).is_err());
    let Ok(mapped) = output(answer, &[identity]) else { return };
    for (place, one) in mapped.iter().enumerate() {
        assert_eq!((one.rule, one.identity), (place + 1, 0), "nobody else was asked about");
        check_account(&one.account);
    }
}

fn check_account(account: &str) {
    assert!(!account.is_empty() && account.len() <= 256);
    assert!(!account.chars().any(|c| c.is_control() || matches!(c, '/' | ':')));
}
