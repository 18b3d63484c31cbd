BEGIN TRANSACTION;
CREATE TABLE ledger_analyst (
    dataset TEXT NOT NULL,
    name TEXT NOT NULL,
    cap_loss TEXT,
    cap_units BIGINT,
    cap_delta_units BIGINT,
    epsilon TEXT,
    rho TEXT NOT NULL,
    delta TEXT NOT NULL,
    spent_units BIGINT NOT NULL,
    spent_delta_units BIGINT NOT NULL,
    PRIMARY KEY (dataset, name),
    CONSTRAINT within_cap CHECK (0 <= spent_units AND (cap_units IS NULL OR spent_units <= cap_units)),
    CONSTRAINT within_cap_delta CHECK (
        0 <= spent_delta_units AND (cap_delta_units IS NULL OR spent_delta_units <= cap_delta_units)
    ),
    FOREIGN KEY (dataset) REFERENCES ledger_dataset (name)
);
CREATE TABLE ledger_answer (
    dataset TEXT NOT NULL,
    number INTEGER NOT NULL,
    time TEXT NOT NULL,
    place INTEGER NOT NULL,
    entries INTEGER NOT NULL,
    previous TEXT NOT NULL,
    hash TEXT NOT NULL,
    found TEXT,
    body BLOB NOT NULL,
    PRIMARY KEY (dataset, number),
    UNIQUE (dataset, place),
    FOREIGN KEY (dataset, number) REFERENCES ledger_entry (dataset, number)
);
INSERT INTO "ledger_answer" VALUES('default',2,'2026-11-24T19:15:59.159999+00:00',1,2,'d995f997d46875517d9913bb229b0eaa7ef5fabb8f4ec46c5e980fac2b482ec7','c1599b1adc3efd942882e9c261fe6f0250064aa1f4e5962b819fb4f6bdd81b53',NULL,X'707B2276616C756573223A207B7D2C2022617272617973223A205B5B2230222C20223C6938222C205B325D5D2C205B2231222C20223C6938222C205B325D5D5D7D0A68000000000000006100000000000000C802000000000000C201000000000000');
INSERT INTO "ledger_answer" VALUES('default',3,'2026-11-24T19:15:59.265691+00:00',2,3,'51a906ae9c9b65a0d392235f1dc71aea4e6a456133082c3038b8ea950c0e6a42','aa7b5ff56305ffb42211cf1281dc01894c0f6a13761c2b66b77153258040f41e',NULL,X'707B2276616C756573223A207B7D2C2022617272617973223A205B5B2230222C20223C6938222C205B315D5D5D7D0A3300000000000000');
INSERT INTO "ledger_answer" VALUES('default',4,'2026-11-24T19:15:59.387972+00:00',3,4,'a0a16c0a561acfb3c0b1bce7ee54b70b794653e971f40e98c76d75e9a959d39a','710484cbbcaf0c9098d20622ec479f50ec6a30324f4bcb6568862623f47decfa',NULL,X'707B2276616C756573223A207B7D2C2022617272617973223A205B5B2230222C20223C6938222C205B345D5D5D7D0AFCFFFFFFFFFFFFFF340000000000000029000000000000002B00000000000000');
INSERT INTO "ledger_answer" VALUES('default',5,'2026-11-24T19:15:59.672218+00:00',4,5,'5c35d7d75c761df582745584ff2ba3c019429c0b879997c0393dad9794d85b2b','230e0f165f4e8bdd060699b34c589ac2f8a82132016e4a21b28ce56c9da396a5',NULL,X'7A785EED587B8C155719C7D24D78434B1BB5403359AC8DB2BD7BCEBCCE0C627741C2C62AC5A8AD91ED26CCEECEB2D75EEE5DEEDCBBDB85802D7F341B5D15853FD0484BD4568398C6D492F807CE02D6F828D45753905A79898665CB2A2DD26ABB9E99F9E6DE73E675E7429760E2FD63BF3DE77CE73BBFF33DCF7C9B1BFB8D5CD9B41A970A9B1B7B4DA35BC81B1BDC617B639F59E8CB9919CB7CA4B149F04745737DB6907726FAB356B66465F2E50D9D669199E8C916AD52E6E16CBE3B34D955B04A8D1D74AF7B52572EBBD13BBA9D3B8C3254C6709C3BC51FC84E314786A7FD438302AA5788D91E73B3AA3C50509C4A621006CF0DC90385C37583E0D259256657086A0A63D5E90811D64BE72CEC465E05492E96781CAB858ADB950A2523479D0ECB38A3234525924E24A42055F21D73836958E5A2D9ED7A66D035552DA3EB84482AC1B2A28B3A711044F8AB8A32225110917524135594458F2FE4C4929C91754D53354921A28C31C7C69B51913344951449D74511631210E9F1FADE24E10C1265D9E1A520148D2851384396A14C04672449459882728E413CF0140EA3A81915EBB2A42A48444455780D2579B72C677449D3E81E4954B14274394A69710144B40CA2565130C21A3D1EF137AE91C6784DABD435E81D281651D164A4EB6AB2F65268E59AD0410438D649BC645DD9B9A6B4BAA2304E6529CA444D2049692B727325D8FB0AB448D1826509851EA1CBCCE5DC4AB7C58FF47C216B0D0A25A3330725B0DF2C5A4E7DA3E981F25416DA37371AA55231DB592E7905CB39607DB150EEAB8C1C51A65B37BBB35657D12C99429B51B6ACACE1564B11F1BF664516459DA61019496E49EC299A562FDD5F2A964D8A2F78205B8DF9C3F3E55CCE99A901400E006087CDD4C7452CD35CA5E8922469A22C891A12451E598F91B392A0556B35A39A94E882EAE1D0290A927555D269869468588B08D3F42263C2E92D165D28E3D68F2E51774EB2D4144DD7354993B12C5390B4AA204DAF0B1E9F7FDE6588981A952884FEA86D1121B4D6614D52A5FA34C81798FA2126DAD8814533BF86B1446B862C8BB4B63AF530A5166B3FC518BCA84970CA6CAD8811B1821489565C396CFF661ABD0A35392D8F9A8690AE1045424843BC46E36239FCB48BAB690C6AB1499052A0F6116B6A38E09BB14A8DAF69B2A22992AC8A8AA84A48C6AA8EEB4D41718FE780573409CEEBE19A148D912A53C484262651D31141924EB14B0AEF1835345DE329CFA0A6693F8D96B15EF991284553AC5855A837EB54CD44D5297215C9A24E9F5557A1EA38EF4E4C1A4D02F5F334EAA76F44FF47736BF0D78CA98768F435465D1DA9982042EFA2C892A64A7515AEABF9F4E063366500DC18A6A9BED842219132FD5CA77BD4FB640CE4D1742E769DEE52D7833564171AFA3740B8A47B2FF3192B0DECEB64821A4FF54044A7280EEF2AEE0EE7E55F32B239015D7BA3AB2F6774994C8F2B67D0EE56B530F615CDFE6CA16C055B619579F753BDCA5FEACD8678DDB94AD70C80737DB338778904176CB144344FD8A655358755FA16FCA55866FE5A359B3969DA441158E2D49B8E35D40AACEA9C15C069BD7A75D7DC2C9F6BF00EC787C1327E6B4922BAD3BF5032442212A6ED1DB9CA13682E81FD38202AA23BE8EB32E3B45F08FDEAE1BA201C3AFA8ED768BB43CE28941299280A8B27FEEBD78F81ABFDFEF5FB581CEEABF82450B04A9FCF499FA62AA13D1D4D27BAEE3E403429E51701ABD84A04553FD9537E97D2EF39FAC0A77F1331D256A2AE1285DA42C722529CEF5555E5DFD4DEE7A99B7FF205682278EF62A1502E0D98D9F5BD9630D06B94040FB8D0690E16F2DD42A9D714DC679ED3C03084723E5B12BA0AE51C5DA1DD0C81F23B26107205CBA2BD835E7350308AA6D05D3406F28261B1DBF3A6E5AC35BA188C62D11884D6BBDB8CEFA3A0F2A5AC4133A3939396F56894B48B8E37B57BEDFA2A076638702487585386549343AEC9A1B01C4EF18E02ABA66122EC8DE224391AA928268E494FC384391DD3AFD13869985335E58A65E4349E249155BC736EAC444EFF498CAC190237F1E20D5C2A1B722958F62EE92D4B8C1161D9BB9AB72C8797BD0BC52E7BD780B3591771638E065A9CBFFBEBAC095874FE3AAB79169EBFCE2A3C6A9DD3330B90694E721A6454C0B2B05A8C13C3AA92BD0B2B274E9F2C0FAB54F64E2C8FE716118A6799BCE8F498A8EFB0D98465F3E21364F11ECBB279115A93CD8BD1CAA171CA8228AD880BF836A77B56F9E1A8E258591BD0E84BB835664DE1F0C5DF1C736E9ECCCA1A264964C0366135F1D1ED20E0C2D7BB351FE32E53D863F8484F6602A5B84C228082E74C7411E3EC11E264C33B4E1A1BE2E0A221395C5EF54234C4C3867A9C1C2E9BC6C809D4B4385181AA16C7C6D6B5AA3786C0B3952D818DAB6D7147F2752DE69638E21511365FC4430298E28B0FCF10517E78062E6239B070041BA7BC0F0103179D5112D89884C4CC63608351E4D50A67B039325204971D791109B510602454C30047BCD5A22A22AF2E9F23E2ED1738850D13FEB6BE0C2E48A2AFCB0648B410EECDC70B892BCFBCA0D80A4D85756C99B16FEEE8A2E387A6B6BE70F71DAF6CB94918E9597061D3F48D6FD98DCF3C7579C9AA552327EDA1695B7789AD83BF3937FA99990B468EEC3F30BDE98DDB47E6DDBFA5ED7CC7C2D686EF0C9FDD797E45EB14F7373EB1F5F9579F7A41BAD03267DE73CDF73C3B6EFBF33E3DF4E999BBF3DF7FD15EBDF2E607FE7578ACB2BE7074EDE727FA6F19F1E9D19977EC79BEB064E4CFB327EE3B3134A7F5C0C2C1E5E757CF68FDE3233FB832B6E647F6D37FBBBC76DED1BB47BEFE6AFBC68F1F996879F4D8895F9CDD3B6DA469F6D28F90E1BB5AAFFC6ADBEEFBFE71F3C8379674AEDFBFE327F6E8CBFB9F5DF5B3DFDA6D7FFAEADB8FF5FCBEE5AF7FD9B97CEABA532DDB8FDFB268E7B2332DA71ABBB6A173AFD96B877EBE6FDBD098DD30F7F16F4D1B79A342177FF78B76D78E7FDA3E3DF1ED0DABBFB9F9B4FD664BDBDECE9FBE6E07C72F3E7A6F9FF9CBB1960FAFC14FFEF0E0453B385EBFE3E4135F9E7BD0CE771D58B2E499D376703C7DFED70A2BD7FDCE6E7A69D3CCD133975B3CFD4D99F21EFF9F1AD4E70BD2B86D69E5A63C7ED2D978BCE3A09FC9A378D66134EBF0075A6F740A71D6320C161800DA00F4CEC0B803C61727BCDF5218CB409701D5819E03BE7B0272EE85F19BB0EE9F331BE65F87F94B40C7817E10D6FF0DE3193056819E84799F8CC13F7361FD3F306E82F12CA08B802E08E01261FC59A05760FF2B40FF00F4F6805E6E83F17CA02B807E0CA88FE769D87F17CC3F00F4BD4077019D03B40BF84781FAF84FC1F80BC0B70DC60FC3F8D73046303E16D0C3A760FE21FF1CA069C964E50347EE45FDAD7756642EDB3EF5308D4FF8E3C32FDF76EAD8F7CED88786EF9CB5E7E2DFA1464C99B27A977D61F1A5E395F13BEE9DED659FF4E65B7CFA0918FB74058CFDBBFBFB265B17411D4E964ED3DEE3FF7CAC066AD78A9E86E7DEDFFFA5E5AD3E053FADBBD6DCE835C3C71777BFFF15FC7B3FF4A05B0E8E361F7133C363DBF7B8A1DE80AFBCEDD075F77FC5BD62DB43A7DDF5BE7DDBDD90DCBA32EB8E67B63EE8D2272CAF7A7DF473EF9BEAD027A7BEE4CA3939F5D69B9CF1FC1F3FEEF20DDFAAB9E3B3638B5D5A6EDBEDCE0F6D3AE89EB777CD5277DF097BC0A5E4D20E974E1BDFEC9EBB9B7859FDD86B1BDDF9FF024FC88861');
CREATE TABLE ledger_checkpoint (
    dataset TEXT NOT NULL,
    number INTEGER NOT NULL,
    hash TEXT NOT NULL,
    unit_is_fixed INTEGER NOT NULL,
    sums TEXT NOT NULL,
    checked TEXT NOT NULL,
    answers INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (dataset),
    FOREIGN KEY (dataset) REFERENCES ledger_dataset (name)
);
CREATE TABLE ledger_dataset (
    name TEXT NOT NULL,
    opened TEXT NOT NULL,
    secret TEXT NOT NULL,
    limit_loss TEXT NOT NULL,
    limit_units BIGINT NOT NULL,
    limit_delta_units BIGINT NOT NULL,
    epsilon TEXT,
    rho TEXT NOT NULL,
    delta TEXT NOT NULL,
    spent_units BIGINT NOT NULL,
    spent_delta_units BIGINT NOT NULL,
    entries INTEGER NOT NULL,
    head TEXT NOT NULL,
    unit TEXT,
    answers INTEGER NOT NULL DEFAULT 0,
    version INTEGER NOT NULL DEFAULT 0,
    version_digest TEXT,
    PRIMARY KEY (name),
    CONSTRAINT within_limit CHECK (0 <= spent_units AND spent_units <= limit_units),
    CONSTRAINT within_delta CHECK (0 <= spent_delta_units AND spent_delta_units <= limit_delta_units)
);
INSERT INTO "ledger_dataset" VALUES('default','2026-11-24T19:15:59.094534+00:00','87976ad3dc040a0b9f4660884d690d068df4fc87f56f1204a5691e0ebaf4602d','{"delta":"1/100000","epsilon":"60"}',26652275287600,100000000000,NULL,'54229145403/2500000000000','0',21691658161,0,5,'230e0f165f4e8bdd060699b34c589ac2f8a82132016e4a21b28ce56c9da396a5','{"id":"person","kind":"id","rows":3,"schema":"clinic"}',4,1,'1972d650ac74867274150203a01ecfc628817e444b07bcd6d135149c6d818a84');
CREATE TABLE ledger_entry (
    dataset TEXT NOT NULL,
    number INTEGER NOT NULL,
    time TEXT NOT NULL,
    kind TEXT NOT NULL,
    family TEXT NOT NULL,
    method TEXT NOT NULL,
    "key" TEXT NOT NULL,
    question TEXT NOT NULL,
    epsilon TEXT,
    rho TEXT,
    delta TEXT,
    analyst TEXT,
    statement TEXT NOT NULL,
    details TEXT NOT NULL,
    previous TEXT NOT NULL,
    hash TEXT NOT NULL,
    stated TEXT,
    PRIMARY KEY (dataset, number),
    CONSTRAINT counts_from_one CHECK (number > 0),
    FOREIGN KEY (dataset) REFERENCES ledger_dataset (name)
);
INSERT INTO "ledger_entry" VALUES('default',1,'2026-11-24T19:15:59.111664+00:00','version','ledger','version','9d89bb4d1033e5816b930de7d07ebb6e05cb661923d5497edaea6b4ef28a390a','{"dataset_version":"","family":"ledger","method":"version","parameters":{"by":"root","digest":"f8c2d9513de42fc1d5b4caedd3aa911cc88f6fb38757681fac52dd83e6ed0ca0","files":"de59aea35d2894975655061c9e176396914501622f4923ab00e79f61321cef06","number":1}}',NULL,NULL,NULL,NULL,'version 1 of the data, declared by root','null','49758748879d2d36f036bdfa5757e7be8c26d38c453ed1393324f919f4f381aa','b811f7349e8a706c90d7a03b6c355398bf11b362852800f69d6603f7a5a9fe9c',NULL);
INSERT INTO "ledger_entry" VALUES('default',2,'2026-11-24T19:15:59.114545+00:00','release','query','tally','a88962dcdfc56008cb8b4992d4df4f7fac6d1284085313020907ccca64a6ffb6','{"dataset_version":"1","family":"query","method":"tally","parameters":{"domain":"ab1a24fd409053e2e0883ada01f16195bd9f0ab8be63d02a37e5346329e1568a","loss":{"delta":"1e-07","epsilon":"0.5"},"owners":"1866cb5330a9bf7269dc85f941f0b47276408c14046671080d672b3dbad01b13","questions":[{"attributes":["sex"],"groups":null,"kind":"marginal","where":null},{"by":["sex"],"kind":"sum","unit":"1","value":"cost","where":null}],"shares":["1/2","1/2"],"view":"db27bbbbd1d2314793f5adecfd2a4442fd424371cf6cb7234b70f46d46fbdec2"}}',NULL,'54229145403/10000000000000','0',NULL,'differential privacy with epsilon = 0.5, delta = 1e-07 (as zCDP with rho = 0.00542291) for adding or removing all rows of one person of clinic, in all its tables (at most 3)','{"accepted":null,"asked":"count(*), sum(cost) by sex of visits AS v JOIN people AS p ON same person","owners":{"people":"of the unit that person names","visits":"of the unit that person names"},"view":{"is":"Join","left":{"called":["kind","cost"],"is":"Scan","table":{"attributes":{"cost":{"maximum":20,"minimum":0,"nullable":false,"type":"integer","unknown":"clamp"},"kind":{"maximum":2,"minimum":0,"nullable":false,"type":"integer","unknown":"drop"}},"key":"visit","links":{},"table":"visits","unit":"person"}},"on":[],"outer":false,"right":{"called":["sex","region"],"is":"Scan","table":{"attributes":{"region":{"maximum":2,"minimum":0,"nullable":false,"type":"integer","unknown":"drop"},"sex":{"nullable":false,"type":"categorical","unknown":"drop","values":["F","M"]}},"key":"person","links":{},"table":"people","unit":null}}}}','b811f7349e8a706c90d7a03b6c355398bf11b362852800f69d6603f7a5a9fe9c','d995f997d46875517d9913bb229b0eaa7ef5fabb8f4ec46c5e980fac2b482ec7','{"counted":[null,"54229145403/10000000000000","0"],"neighbours":"add/remove","unit":"{\"id\":\"person\",\"kind\":\"id\",\"rows\":3,\"schema\":\"clinic\"}"}');
INSERT INTO "ledger_entry" VALUES('default',3,'2026-11-24T19:15:59.251139+00:00','release','query','tally','6de761ebec860b30291c52b2d073d08d6a4e3bb37abccdf4f3312471499c88b3','{"dataset_version":"1","family":"query","method":"tally","parameters":{"domain":"a0e40bc763ae3368c2b8cbb334e6b2bfaf2e33b99ca776a1b726ec5ced37f36c","loss":{"delta":"1e-07","epsilon":"0.5"},"owners":"1866cb5330a9bf7269dc85f941f0b47276408c14046671080d672b3dbad01b13","questions":[{"attributes":[],"groups":null,"kind":"marginal","where":null}],"shares":["1"],"view":"30dcdab88558b7b21e049ee36cf1c6a1ce351d37b4b2a1a0d9e8a4bf17499b7b"}}',NULL,'54229145403/10000000000000','0',NULL,'differential privacy with epsilon = 0.5, delta = 1e-07 (as zCDP with rho = 0.00542291) for adding or removing all rows of one person of clinic, in all its tables (at most 1)','{"accepted":null,"asked":"count(*) of people WHERE person IN (person of visits WHERE kind in 1)","owners":{"people":"of the unit that person names","visits":"of the unit that person names"},"view":{"is":"OfUnits","source":{"called":["sex","region"],"is":"Scan","table":{"attributes":{"region":{"maximum":2,"minimum":0,"nullable":false,"type":"integer","unknown":"drop"},"sex":{"nullable":false,"type":"categorical","unknown":"drop","values":["F","M"]}},"key":"person","links":{},"table":"people","unit":null}},"units":{"is":"Filter","source":{"called":["kind","cost"],"is":"Scan","table":{"attributes":{"cost":{"maximum":20,"minimum":0,"nullable":false,"type":"integer","unknown":"clamp"},"kind":{"maximum":2,"minimum":0,"nullable":false,"type":"integer","unknown":"drop"}},"key":"visit","links":{},"table":"visits","unit":"person"}},"where":{"attribute":"kind","codes":{"bounds":[1,2],"is":"CodeRanges"},"is":"Among"}},"without":false}}','c1599b1adc3efd942882e9c261fe6f0250064aa1f4e5962b819fb4f6bdd81b53','51a906ae9c9b65a0d392235f1dc71aea4e6a456133082c3038b8ea950c0e6a42','{"counted":[null,"54229145403/10000000000000","0"],"neighbours":"add/remove","unit":"{\"id\":\"person\",\"kind\":\"id\",\"rows\":1,\"schema\":\"clinic\"}"}');
INSERT INTO "ledger_entry" VALUES('default',4,'2026-11-24T19:15:59.372709+00:00','release','query','tally','1991576bdcc07998e55e05c3d422395aa3c3dd6f67ab8ebe747985940a512d0b','{"dataset_version":"1","family":"query","method":"tally","parameters":{"domain":"06ad0dd90942f41ae9caafc6818cdccee3cd476678f24c4bdd666a54cf902f8e","loss":{"delta":"1e-07","epsilon":"0.5"},"owners":"510a7b713b501abf851b04f56cd4112025b7e839d1068c01dc508974a38a6cc6","questions":[{"attributes":["n"],"groups":null,"kind":"marginal","where":null}],"shares":["1"],"view":"6a7fe24519737b2d8a6998b883538519349d6370b34e95bf088bfbd22d4088fd"}}',NULL,'54229145403/10000000000000','0',NULL,'differential privacy with epsilon = 0.5, delta = 1e-07 (as zCDP with rho = 0.00542291) for adding or removing all rows of one person of clinic, in all its tables (at most 1)','{"accepted":null,"asked":"count(*) by n of n = COUNT(*) up to 3 of visits BY person","owners":{"visits":"of the unit that person names"},"view":{"by":[],"is":"PerUnit","source":{"called":["kind","cost"],"is":"Scan","table":{"attributes":{"cost":{"maximum":20,"minimum":0,"nullable":false,"type":"integer","unknown":"clamp"},"kind":{"maximum":2,"minimum":0,"nullable":false,"type":"integer","unknown":"drop"}},"key":"visit","links":{},"table":"visits","unit":"person"}},"values":[["n",{"is":"RowCount","maximum":3,"of":null}]]}}','aa7b5ff56305ffb42211cf1281dc01894c0f6a13761c2b66b77153258040f41e','a0a16c0a561acfb3c0b1bce7ee54b70b794653e971f40e98c76d75e9a959d39a','{"counted":[null,"54229145403/10000000000000","0"],"neighbours":"add/remove","unit":"{\"id\":\"person\",\"kind\":\"id\",\"rows\":1,\"schema\":\"clinic\"}"}');
INSERT INTO "ledger_entry" VALUES('default',5,'2026-11-24T19:15:59.472840+00:00','release','synthesize','related','7af147005e45098544281a9e3d270c72b91bb81dfe70ac43efff9b5fc9abb0f3','{"dataset_version":"1","family":"synthesize","method":"related","parameters":{"domain":"15bb4eb7c7025d0f8db776eb431b45ff15f96302b6cd8d97ba987e739201d59f","loss":{"delta":"1e-07","epsilon":"0.5"},"owners":"1866cb5330a9bf7269dc85f941f0b47276408c14046671080d672b3dbad01b13","related":{"children":[{"memory":1,"most":3,"order":null,"table":"visits"}],"parent":"people","schema":"e4f9b6247035fb65f2de6e31622b46807e0f4a45be67dd51d37e166f7495fcd1","tau":2,"whole":720720},"settings":{"calibrated_units":40000,"calibration":9,"head_cells":400000,"tail_cells":400000},"total":"summed"}}',NULL,'54229145403/10000000000000','0',NULL,'differential privacy with epsilon = 0.5, delta = 1e-07 (as zCDP with rho = 0.00542291) for adding or removing all rows of one person of clinic, in all its tables (at most 3 of visits are kept)','{"accepted":null,"asked":"synthetic units with visits","owners":{"people":"of the unit that person names","visits":"of the unit that person names"}}','710484cbbcaf0c9098d20622ec479f50ec6a30324f4bcb6568862623f47decfa','5c35d7d75c761df582745584ff2ba3c019429c0b879997c0393dad9794d85b2b','{"counted":[null,"54229145403/10000000000000","0"],"neighbours":"add/remove","unit":"{\"id\":\"person\",\"kind\":\"id\",\"rows\":1,\"schema\":\"clinic\"}"}');
CREATE TABLE ledger_retry (
    dataset TEXT NOT NULL,
    analyst TEXT NOT NULL,
    retry_key TEXT NOT NULL,
    "key" TEXT NOT NULL,
    PRIMARY KEY (dataset, analyst, retry_key),
    FOREIGN KEY (dataset) REFERENCES ledger_dataset (name)
);
CREATE TABLE ledger_version (
    version_num VARCHAR(32) NOT NULL,
    CONSTRAINT ledger_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "ledger_version" VALUES('0008');
CREATE TABLE service_action (
    number INTEGER NOT NULL,
    time TEXT NOT NULL,
    actor TEXT NOT NULL,
    through TEXT NOT NULL,
    kind TEXT NOT NULL,
    subject TEXT NOT NULL,
    state_before TEXT NOT NULL,
    state_after TEXT NOT NULL,
    previous TEXT NOT NULL,
    hash TEXT NOT NULL,
    PRIMARY KEY (number)
);
CREATE TABLE service_action_head (
    id INTEGER NOT NULL,
    number INTEGER NOT NULL,
    hash TEXT NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT one_head CHECK (id = 1)
);
INSERT INTO "service_action_head" VALUES(1,0,'fad2c4429e69ccf95429a372036db522b7c50e351538f390fc600884eaf052c1');
CREATE TABLE service_approval (
    id TEXT NOT NULL,
    dataset TEXT NOT NULL,
    release TEXT NOT NULL,
    asked_by TEXT NOT NULL,
    asked TEXT NOT NULL,
    question TEXT NOT NULL,
    cost TEXT NOT NULL,
    approved_by TEXT,
    approved TEXT,
    key_id TEXT,
    expires TEXT,
    closed TEXT,
    PRIMARY KEY (id)
);
CREATE TABLE service_dataset (
    name TEXT NOT NULL,
    source TEXT NOT NULL,
    domain TEXT NOT NULL,
    limit_text TEXT NOT NULL,
    rows INTEGER,
    discoverable TEXT NOT NULL,
    registered TEXT NOT NULL,
    called TEXT,
    retired TEXT,
    PRIMARY KEY (name)
);
CREATE TABLE service_grant (
    dataset TEXT NOT NULL,
    analyst TEXT NOT NULL,
    shut_out INTEGER NOT NULL,
    PRIMARY KEY (dataset, analyst)
);
CREATE TABLE service_identity (
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    first TEXT NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (name)
);
CREATE TABLE service_job (
    id TEXT NOT NULL,
    dataset TEXT NOT NULL,
    owner TEXT NOT NULL,
    request TEXT NOT NULL,
    state TEXT NOT NULL,
    progress FLOAT NOT NULL,
    note TEXT NOT NULL,
    updated TEXT NOT NULL,
    statement TEXT,
    rows BLOB,
    PRIMARY KEY (id)
);
CREATE TABLE service_key (
    id TEXT NOT NULL,
    hash TEXT NOT NULL,
    name TEXT NOT NULL,
    scope TEXT NOT NULL,
    issued TEXT NOT NULL,
    expires TEXT NOT NULL,
    revoked TEXT,
    used TEXT,
    PRIMARY KEY (id),
    UNIQUE (hash)
);
CREATE TABLE service_login (
    state TEXT NOT NULL,
    browser TEXT NOT NULL,
    nonce TEXT NOT NULL,
    verifier TEXT NOT NULL,
    begun TEXT NOT NULL,
    PRIMARY KEY (state)
);
CREATE TABLE service_name (
    name TEXT NOT NULL,
    dataset TEXT NOT NULL,
    PRIMARY KEY (name)
);
CREATE TABLE service_notice (
    kind TEXT NOT NULL,
    subject TEXT NOT NULL,
    state TEXT NOT NULL,
    told TEXT NOT NULL,
    PRIMARY KEY (kind, subject)
);
CREATE TABLE service_probe (
    id TEXT NOT NULL,
    written TEXT NOT NULL,
    PRIMARY KEY (id)
);
CREATE TABLE service_session (
    hash TEXT NOT NULL,
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    scope TEXT NOT NULL,
    key_id TEXT,
    begun TEXT NOT NULL,
    expires TEXT NOT NULL,
    ended TEXT,
    identity TEXT,
    PRIMARY KEY (hash),
    FOREIGN KEY (key_id) REFERENCES service_key (id)
);
CREATE TABLE service_snapshot (
    dataset TEXT NOT NULL,
    version TEXT NOT NULL,
    folder TEXT NOT NULL,
    copies TEXT NOT NULL,
    files TEXT NOT NULL,
    PRIMARY KEY (dataset)
);
CREATE TABLE service_terms (
    dataset TEXT NOT NULL,
    granted_only INTEGER NOT NULL,
    default_cap TEXT,
    most TEXT,
    approval_above TEXT,
    PRIMARY KEY (dataset)
);
CREATE INDEX ledger_shown ON ledger_entry (dataset, "key", analyst);
CREATE INDEX ledger_asked ON ledger_entry (dataset, analyst, number);
CREATE INDEX ledger_versions ON ledger_entry (dataset, number) WHERE kind = 'version';
CREATE INDEX ledger_uncharged ON ledger_entry (dataset, number) WHERE rho IS NULL;
CREATE INDEX service_approval_found ON service_approval (dataset, release);
CREATE TRIGGER ledger_entry_no_update BEFORE UPDATE ON ledger_entry BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER ledger_entry_no_delete BEFORE DELETE ON ledger_entry BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER ledger_answer_no_update BEFORE UPDATE ON ledger_answer BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER ledger_answer_no_delete BEFORE DELETE ON ledger_answer BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER ledger_retry_no_update BEFORE UPDATE ON ledger_retry BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER ledger_retry_no_delete BEFORE DELETE ON ledger_retry BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER ledger_dataset_fixed BEFORE UPDATE OF name, opened, secret, limit_loss, limit_units, limit_delta_units ON ledger_dataset BEGIN SELECT RAISE(ABORT, 'a limit never changes'); END;
CREATE TRIGGER ledger_dataset_kept BEFORE DELETE ON ledger_dataset BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER ledger_dataset_forward BEFORE UPDATE ON ledger_dataset WHEN NEW.spent_units < OLD.spent_units OR NEW.entries < OLD.entries OR NEW.answers < OLD.answers OR NEW.version < OLD.version BEGIN SELECT RAISE(ABORT, 'what was spent is never refunded'); END;
CREATE TRIGGER ledger_dataset_of_unit BEFORE UPDATE OF unit ON ledger_dataset WHEN OLD.unit IS NOT NULL AND NEW.unit IS NOT OLD.unit BEGIN SELECT RAISE(ABORT, 'a unit never changes'); END;
CREATE TRIGGER service_action_no_update BEFORE UPDATE ON service_action BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER service_action_no_delete BEFORE DELETE ON service_action BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER service_action_kept BEFORE DELETE ON service_action_head BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER service_action_forward BEFORE UPDATE ON service_action_head WHEN NEW.number <> OLD.number + 1 BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
COMMIT;
