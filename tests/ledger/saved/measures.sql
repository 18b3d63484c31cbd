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
	CONSTRAINT within_cap_delta CHECK (0 <= spent_delta_units AND (cap_delta_units IS NULL OR spent_delta_units <= cap_delta_units)), 
	FOREIGN KEY(dataset) REFERENCES ledger_dataset (name)
);
INSERT INTO "ledger_analyst" VALUES('pure','ann','{"epsilon":"3/2"}',1500000000000,0,'5/4','5/32','0',1250000000000,0);
INSERT INTO "ledger_analyst" VALUES('pure','bob','{"epsilon":"3/10"}',300000000000,0,'1/4','1/32','0',250000000000,0);
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
INSERT INTO "ledger_answer" VALUES('pure',3,'2026-11-22T04:23:51.410633+00:00',1,10,'04b8c615c86f8efdb12175ac1f80bf18bfe2520f15953074536b0b2f593a2ff7','b203746253fa55d16a87af1c1fa8b5e38197d9fe572336f371c0eb03b1d38bfc','2026-11-24T22:29:06.244727+00:00',X'707B2276616C756573223A207B7D2C2022617272617973223A205B5B2230222C20223C6938222C205B315D5D5D7D0A4200000000000000');
INSERT INTO "ledger_answer" VALUES('pure',4,'2026-11-22T04:23:51.446375+00:00',2,10,'b203746253fa55d16a87af1c1fa8b5e38197d9fe572336f371c0eb03b1d38bfc','fd2ba4a7a935121db74ce7ab9adaa2cc17874b399e26cff057b5e49f211a70ea','2026-11-24T22:29:06.244727+00:00',X'707B2276616C756573223A207B7D2C2022617272617973223A205B5B2230222C20223C6938222C205B345D5D5D7D0A16000000000000000A0000000000000018000000000000000000000000000000');
INSERT INTO "ledger_answer" VALUES('pure',5,'2026-11-22T04:23:53.334817+00:00',3,10,'fd2ba4a7a935121db74ce7ab9adaa2cc17874b399e26cff057b5e49f211a70ea','445c36a49d299828b90d0b57314a7c42ebce7479b9f3f9ff91bb9f718ef25c4f','2026-11-24T22:29:06.244727+00:00',X'707B2276616C756573223A207B2261747472696275746573223A205B5B22746F776E222C2022616765225D5D2C2022746F74616C223A2031337D2C2022617272617973223A205B5B22706172742030222C20223C6638222C205B342C20335D5D5D7D0A0000000000000000000000000000184000000000000000000000000000000000000000000000000000000000000000000000000000001C4000000000000000000000000000000000000000000000000000000000000000000000000000000000');
INSERT INTO "ledger_answer" VALUES('pure',6,'2026-11-22T04:23:53.389385+00:00',4,10,'445c36a49d299828b90d0b57314a7c42ebce7479b9f3f9ff91bb9f718ef25c4f','bfcf59ed0ef9e60498feb1e1074985a1b65c56c9d568d227d46fe0231ac1b8cd','2026-11-24T22:29:06.244727+00:00',X'7468697264');
INSERT INTO "ledger_answer" VALUES('pure',9,'2026-11-22T04:23:53.423313+00:00',5,10,'bfcf59ed0ef9e60498feb1e1074985a1b65c56c9d568d227d46fe0231ac1b8cd','be18632b938db6ba362bd72747243815b0cef706f019241e78fb37c9035c8408','2026-11-24T22:29:06.244727+00:00',X'736576656E7468');
INSERT INTO "ledger_answer" VALUES('pure',10,'2026-11-22T04:23:53.435520+00:00',6,10,'be18632b938db6ba362bd72747243815b0cef706f019241e78fb37c9035c8408','b967a2594afd7ea6757444fc3278548272441588266922ec597d6aecef445095','2026-11-24T22:29:06.244727+00:00',X'6B');
INSERT INTO "ledger_answer" VALUES('zcdp',1,'2026-11-22T04:23:53.911810+00:00',1,6,'5bbab5ad17d58eef3d3f6fced49854d9a24f77e8f34043b33425b308eab0c6bc','85f66dec2707e66b06d700c9fa3e6374d476c9e6e31a522bb1c1b648834e6d27','2026-11-24T22:29:06.244727+00:00',X'707B2276616C756573223A207B7D2C2022617272617973223A205B5B2230222C20223C6938222C205B315D5D5D7D0A4500000000000000');
INSERT INTO "ledger_answer" VALUES('zcdp',2,'2026-11-22T04:23:53.938144+00:00',2,6,'85f66dec2707e66b06d700c9fa3e6374d476c9e6e31a522bb1c1b648834e6d27','eba7d0e0aa4efbe0fed3ee85f3436999d8d2fd8c0fa33f1eab2ab01f8b3b98a9','2026-11-24T22:29:06.244727+00:00',X'707B2276616C756573223A207B7D2C2022617272617973223A205B5B2230222C20223C6938222C205B345D5D5D7D0A240000000000000017000000000000001C00000000000000FDFFFFFFFFFFFFFF');
INSERT INTO "ledger_answer" VALUES('zcdp',3,'2026-11-22T04:23:53.966328+00:00',3,6,'eba7d0e0aa4efbe0fed3ee85f3436999d8d2fd8c0fa33f1eab2ab01f8b3b98a9','10d1a1dccce11880b4af1866b03e44032cacb8adbb5f49187e34f4486521b6ea','2026-11-24T22:29:06.244727+00:00',X'707B2276616C756573223A207B2261747472696275746573223A205B5B22746F776E222C2022616765225D5D2C2022746F74616C223A2033357D2C2022617272617973223A205B5B22706172742030222C20223C6638222C205B342C20335D5D5D7D0A00000000000000000000000000003640000000000000084000000000000000000000000000000000000000000000000000000000000000000000000000001440000000000000F03F000000000000104000000000000000000000000000000000');
INSERT INTO "ledger_answer" VALUES('zcdp',4,'2026-11-22T04:23:53.998006+00:00',4,6,'10d1a1dccce11880b4af1866b03e44032cacb8adbb5f49187e34f4486521b6ea','294bfc00e52fd0e36c2fd56e27c4072d5f206651bfe045163a4d13501d680f6a','2026-11-24T22:29:06.244727+00:00',X'7468697264');
INSERT INTO "ledger_answer" VALUES('zcdp',6,'2026-11-22T04:23:54.025496+00:00',5,6,'294bfc00e52fd0e36c2fd56e27c4072d5f206651bfe045163a4d13501d680f6a','7985f4aa20a1ffd5dd730a96937d8aaff3d09755f6099d218c0d7d7fda96c58a','2026-11-24T22:29:06.244727+00:00',X'6B');
INSERT INTO "ledger_answer" VALUES('approximate',1,'2026-11-22T04:23:54.378357+00:00',1,6,'215f07173fcc4a11105c6915e40c0dd23583eba0a2b1bebc133908cfca6741d2','c8fe045340ab79d28083b75731214a7718117c1010c6c9b0c74a984fe91015e1','2026-11-24T22:29:06.244727+00:00',X'707B2276616C756573223A207B7D2C2022617272617973223A205B5B2230222C20223C6938222C205B315D5D5D7D0A3B00000000000000');
INSERT INTO "ledger_answer" VALUES('approximate',2,'2026-11-22T04:23:54.406071+00:00',2,6,'c8fe045340ab79d28083b75731214a7718117c1010c6c9b0c74a984fe91015e1','928d3f31b2b6b489ddcea2cb613c4210c4b3f1d6dd1160a199062c175da3652e','2026-11-24T22:29:06.244727+00:00',X'707B2276616C756573223A207B7D2C2022617272617973223A205B5B2230222C20223C6938222C205B345D5D5D7D0A200000000000000015000000000000001900000000000000EAFFFFFFFFFFFFFF');
INSERT INTO "ledger_answer" VALUES('approximate',3,'2026-11-22T04:23:54.431691+00:00',3,6,'928d3f31b2b6b489ddcea2cb613c4210c4b3f1d6dd1160a199062c175da3652e','376be41634d45b689aa59b3476682d07d401a3984adcfd026e21157b24341cad','2026-11-24T22:29:06.244727+00:00',X'707B2276616C756573223A207B2261747472696275746573223A205B5B22746F776E222C2022616765225D5D2C2022746F74616C223A203131337D2C2022617272617973223A205B5B22706172742030222C20223C6638222C205B342C20335D5D5D7D0ACDCCCCCCCCCC2840CDCCCCCCCCCC2A406666666666663F4000000000000000009A99999999991140CDCCCCCCCCCC2640CDCCCCCCCCCC2040989999999999D93F00000000000000003333333333330B406666666666663040CDCCCCCCCCCC2640');
INSERT INTO "ledger_answer" VALUES('approximate',4,'2026-11-22T04:23:54.490164+00:00',4,6,'376be41634d45b689aa59b3476682d07d401a3984adcfd026e21157b24341cad','830f706dd73f88acb91fa33f83d625acc60b222a3b29022a2dcd07a0c9b9254d','2026-11-24T22:29:06.244727+00:00',X'7468697264');
INSERT INTO "ledger_answer" VALUES('approximate',6,'2026-11-22T04:23:54.505334+00:00',5,6,'830f706dd73f88acb91fa33f83d625acc60b222a3b29022a2dcd07a0c9b9254d','471f1caeefd9a06e52f62a18011185aa9b828e7c0a823888fb0cf47b139743ab','2026-11-24T22:29:06.244727+00:00',X'6B');
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
	head TEXT NOT NULL, unit TEXT, answers INTEGER NOT NULL DEFAULT 0, version INTEGER NOT NULL DEFAULT 0, version_digest TEXT, 
	PRIMARY KEY (name), 
	CONSTRAINT within_limit CHECK (0 <= spent_units AND spent_units <= limit_units), 
	CONSTRAINT within_delta CHECK (0 <= spent_delta_units AND spent_delta_units <= limit_delta_units)
);
INSERT INTO "ledger_dataset" VALUES('pure','2026-11-22T04:23:48.284704+00:00','e41a71dc700cd3af60ebd716f41158b2b48d00314ecf52bed53c7011ed7b3df6','{"epsilon":"2"}',2000000000000,0,'39/28','261/1568','0',1392857142857,0,10,'b967a2594afd7ea6757444fc3278548272441588266922ec597d6aecef445095',NULL,6,0,NULL);
INSERT INTO "ledger_dataset" VALUES('zcdp','2026-11-22T04:23:53.489701+00:00','04270370ed041508b19dd78078790dd44e104352b30dcc86ecc02b04c33e50c1','{"rho":"1/2"}',500000000000,0,NULL,'1/10','0',100000000000,0,6,'7985f4aa20a1ffd5dd730a96937d8aaff3d09755f6099d218c0d7d7fda96c58a',NULL,5,0,NULL);
INSERT INTO "ledger_dataset" VALUES('approximate','2026-11-22T04:23:54.059991+00:00','a24ef8cf93d472039ac6740567ecd6309dc0fe28c01d825480c0c5d509855dfa','{"delta":"1/1000000","epsilon":"4"}',310837996299,10000000000,NULL,'1/20','0',50000000000,0,6,'471f1caeefd9a06e52f62a18011185aa9b828e7c0a823888fb0cf47b139743ab',NULL,5,0,NULL);
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
	hash TEXT NOT NULL, stated TEXT, 
	PRIMARY KEY (dataset, number), 
	CONSTRAINT counts_from_one CHECK (number > 0), 
	FOREIGN KEY(dataset) REFERENCES ledger_dataset (name)
);
INSERT INTO "ledger_entry" VALUES('pure',1,'2026-11-22T04:23:49.515268+00:00','cap','ledger','cap','e1a74d13b43c13092612d97742100818b72988e1533be5171b9bfb998c1e290f','{"dataset_version":"","family":"ledger","method":"cap","parameters":{"analyst":"ann","cap":"{\"epsilon\":\"3/2\"}"}}',NULL,NULL,NULL,'ann','cap of ann: epsilon = 1.5','null','8040c05be0690a184f191e6c76df27919e7928b54b26439d885ae1568ef82468','2b21f8fc065c7f2e444eab484a213af60f798a385990a44559eced61bf6d21ab',NULL);
INSERT INTO "ledger_entry" VALUES('pure',2,'2026-11-22T04:23:49.537975+00:00','cap','ledger','cap','0356bd1620d8cfb27887382105804615c565d1c699ec242cc86832babf6057e3','{"dataset_version":"","family":"ledger","method":"cap","parameters":{"analyst":"bob","cap":"{\"epsilon\":\"3/10\"}"}}',NULL,NULL,NULL,'bob','cap of bob: epsilon = 0.3','null','2b21f8fc065c7f2e444eab484a213af60f798a385990a44559eced61bf6d21ab','b39d3d486a851f081e997ffd871bde294f3762f424f1d7107ef72c4cff305baa',NULL);
INSERT INTO "ledger_entry" VALUES('pure',3,'2026-11-22T04:23:51.353935+00:00','release','query','tally','c336a01123ad063fab45e09d88e0e0f2c11e4d725f2767e19ffade1a6662f22f','{"dataset_version":"2c9e46144af1d76622289438e010c1c3a676cd7a65858a698475435e01306983","family":"query","method":"tally","parameters":{"domain":"f73b5bbabedbe84641bc5b37da7fed23e0b31dc8a7def9cef3f41177a7a0b10f","loss":{"epsilon":"0.25"},"questions":[{"attributes":[],"groups":null,"kind":"marginal","where":null}],"shares":["1"]}}','1/4','1/32','0','ann','differential privacy with epsilon = 0.25 for adding or removing all rows of one person (at most 2)','{"asked":"count(*)"}','b39d3d486a851f081e997ffd871bde294f3762f424f1d7107ef72c4cff305baa','0a15621cca953a94488810a7a40e025a715c0cc1a9fea5daa231536b0c423bb1',NULL);
INSERT INTO "ledger_entry" VALUES('pure',4,'2026-11-22T04:23:51.431411+00:00','release','query','tally','a028551067a5e0cfd04afdbf275b053c2bb17ca630f3001f20c6bde02ba17876','{"dataset_version":"2c9e46144af1d76622289438e010c1c3a676cd7a65858a698475435e01306983","family":"query","method":"tally","parameters":{"domain":"f73b5bbabedbe84641bc5b37da7fed23e0b31dc8a7def9cef3f41177a7a0b10f","loss":{"epsilon":"0.25"},"questions":[{"attributes":["town"],"groups":null,"kind":"marginal","where":null}],"shares":["1"]}}','1/4','1/32','0','ann','differential privacy with epsilon = 0.25 for adding or removing all rows of one person (at most 2)','{"asked":"count(*) by town"}','0a15621cca953a94488810a7a40e025a715c0cc1a9fea5daa231536b0c423bb1','8794b98b1ede145f32de15789d8e1478057bac3265da4f0742969007b935bc03',NULL);
INSERT INTO "ledger_entry" VALUES('pure',5,'2026-11-22T04:23:53.317283+00:00','release','synthesize','histogram','f345f9de8b7671ff61f0351b665bf183a0dd65dfc73fa8d667a8e52ef317cb00','{"dataset_version":"2c9e46144af1d76622289438e010c1c3a676cd7a65858a698475435e01306983","family":"synthesize","method":"histogram","parameters":{"cliques":[["town","age"]],"domain":"f73b5bbabedbe84641bc5b37da7fed23e0b31dc8a7def9cef3f41177a7a0b10f","loss":{"epsilon":"0.25"},"total":"summed"}}','1/4','1/32','0','ann','differential privacy with epsilon = 0.25 for adding or removing all rows of one person (at most 2)','{"asked":"synthetic rows of town x age"}','8794b98b1ede145f32de15789d8e1478057bac3265da4f0742969007b935bc03','529b719ac08c285121a258c34ec0f4b857021dee76d88766ec5096240a33593d',NULL);
INSERT INTO "ledger_entry" VALUES('pure',6,'2026-11-22T04:23:53.364216+00:00','release','query','count','d58bbf234056980f1cf2204119ad30206c29718670456f84304ffaa65bfc36cb','{"dataset_version":"a5f46753f0c5cd95dd07a16b661f3203ee91a6b00bb988dcbfda15d768738842","family":"query","method":"count","parameters":{"number":3}}','1/4','1/32','0','ann','three','null','529b719ac08c285121a258c34ec0f4b857021dee76d88766ec5096240a33593d','b334690399f0ca3dadc9f0d934895fd368c6c95d3719d9d6035fd159075be74a',NULL);
INSERT INTO "ledger_entry" VALUES('pure',7,'2026-11-22T04:23:53.397935+00:00','release','query','count','74837de8214a3d02777d32720585e8012415de80fcc8029a3857a382b4694873','{"dataset_version":"a5f46753f0c5cd95dd07a16b661f3203ee91a6b00bb988dcbfda15d768738842","family":"query","method":"count","parameters":{"number":4}}','1/4','1/32','0','ann','failed','null','b334690399f0ca3dadc9f0d934895fd368c6c95d3719d9d6035fd159075be74a','734711ed54be00c2c84439e3ce94c2a24c451535d42dd508afa2c54387158cc5',NULL);
INSERT INTO "ledger_entry" VALUES('pure',8,'2026-11-22T04:23:53.404190+00:00','repeat','query','count','d58bbf234056980f1cf2204119ad30206c29718670456f84304ffaa65bfc36cb','{"dataset_version":"a5f46753f0c5cd95dd07a16b661f3203ee91a6b00bb988dcbfda15d768738842","family":"query","method":"count","parameters":{"number":3}}','1/4','1/32','0','bob','three','null','734711ed54be00c2c84439e3ce94c2a24c451535d42dd508afa2c54387158cc5','007d85ce251f0f3b51df6b084fae3619b4ffafc7f81f56de25ab25216da92574',NULL);
INSERT INTO "ledger_entry" VALUES('pure',9,'2026-11-22T04:23:53.416809+00:00','release','query','count','ffa17f0bedcfa0d26251734fd6599c0d61c75745f87d5bc397f4a2eb3c351da8','{"dataset_version":"a5f46753f0c5cd95dd07a16b661f3203ee91a6b00bb988dcbfda15d768738842","family":"query","method":"count","parameters":{"number":5}}','1/7','1/98','0',NULL,'a seventh','null','007d85ce251f0f3b51df6b084fae3619b4ffafc7f81f56de25ab25216da92574','dd5a1df1c5bb6cb5b6727ceba740b21525118ebeb84ebf8577f599629dba5f91',NULL);
INSERT INTO "ledger_entry" VALUES('pure',10,'2026-11-22T04:23:53.426511+00:00','release','query','count','050c53c0f27f2bbb03bc3cacd6c70f994fa72e8a9d4fa02badc28f1a2f33121f','{"dataset_version":"a5f46753f0c5cd95dd07a16b661f3203ee91a6b00bb988dcbfda15d768738842","family":"query","method":"count","parameters":{"number":6}}',NULL,NULL,NULL,NULL,'no DP guarantee: 3-anonymous','{"asked":"k"}','dd5a1df1c5bb6cb5b6727ceba740b21525118ebeb84ebf8577f599629dba5f91','04b8c615c86f8efdb12175ac1f80bf18bfe2520f15953074536b0b2f593a2ff7',NULL);
INSERT INTO "ledger_entry" VALUES('zcdp',1,'2026-11-22T04:23:53.857018+00:00','release','query','tally','315405a7b617b931271e516c556973f452deb9153cf418f9b91beac0d02619b2','{"dataset_version":"98b4458bde21d41cdadbb2410e3d418373f651c9588e81a65d362fd30b198099","family":"query","method":"tally","parameters":{"domain":"f73b5bbabedbe84641bc5b37da7fed23e0b31dc8a7def9cef3f41177a7a0b10f","loss":{"rho":"0.02"},"questions":[{"attributes":[],"groups":null,"kind":"marginal","where":null}],"shares":["1"]}}',NULL,'1/50','0',NULL,'zero-concentrated differential privacy with rho = 0.02 for adding or removing all rows of one person (at most 2)','{"asked":"count(*)"}','feb41e46adfa35678bfbdd9bdd20d6e2d73f420deda73f797a4285d980e17204','def41c6a27f3bffe28fbda82e784c99208db15952f981b741166de555fecbdee',NULL);
INSERT INTO "ledger_entry" VALUES('zcdp',2,'2026-11-22T04:23:53.918895+00:00','release','query','tally','b43a4d893f03268f5e2e3e0174c13db6087e3227790db02ff802ce6bb96ea5e4','{"dataset_version":"98b4458bde21d41cdadbb2410e3d418373f651c9588e81a65d362fd30b198099","family":"query","method":"tally","parameters":{"domain":"f73b5bbabedbe84641bc5b37da7fed23e0b31dc8a7def9cef3f41177a7a0b10f","loss":{"rho":"0.02"},"questions":[{"attributes":["town"],"groups":null,"kind":"marginal","where":null}],"shares":["1"]}}',NULL,'1/50','0',NULL,'zero-concentrated differential privacy with rho = 0.02 for adding or removing all rows of one person (at most 2)','{"asked":"count(*) by town"}','def41c6a27f3bffe28fbda82e784c99208db15952f981b741166de555fecbdee','732c2ea4fd45f4aaa0a07118d4494335ebf76f9537cb9084eec9b6d1ababafb7',NULL);
INSERT INTO "ledger_entry" VALUES('zcdp',3,'2026-11-22T04:23:53.948741+00:00','release','synthesize','histogram','b081010ce13b8aece42334b54a18878b9014867ec9a86ef538a19431b6aea241','{"dataset_version":"98b4458bde21d41cdadbb2410e3d418373f651c9588e81a65d362fd30b198099","family":"synthesize","method":"histogram","parameters":{"cliques":[["town","age"]],"domain":"f73b5bbabedbe84641bc5b37da7fed23e0b31dc8a7def9cef3f41177a7a0b10f","loss":{"rho":"0.02"},"total":"summed"}}',NULL,'1/50','0',NULL,'zero-concentrated differential privacy with rho = 0.02 for adding or removing all rows of one person (at most 2)','{"asked":"synthetic rows of town x age"}','732c2ea4fd45f4aaa0a07118d4494335ebf76f9537cb9084eec9b6d1ababafb7','1cd67dce5f6e9d813ce3c731d7b31a3448aa62b3e495bdde2c074dac7afd85f9',NULL);
INSERT INTO "ledger_entry" VALUES('zcdp',4,'2026-11-22T04:23:53.983376+00:00','release','query','count','400db71fd3dbd4f63ae9b82edea9fad5b63175ba17e2d55856850ed2eae87e3c','{"dataset_version":"1edd41c877a18fd2e80ff95626addcf3a02f5af0844225068fba84014f1dccde","family":"query","method":"count","parameters":{"number":3}}',NULL,'1/50','0',NULL,'three','null','1cd67dce5f6e9d813ce3c731d7b31a3448aa62b3e495bdde2c074dac7afd85f9','037996de8ab84eb1fa0d8fccff7b06d8eebfc41f3c109f6e26d7cc0c9b951190',NULL);
INSERT INTO "ledger_entry" VALUES('zcdp',5,'2026-11-22T04:23:54.002039+00:00','release','query','count','2fd9b8421a6577351e81ba807b1b57c451799c6b91ba421619324a5ac8fdc684','{"dataset_version":"1edd41c877a18fd2e80ff95626addcf3a02f5af0844225068fba84014f1dccde","family":"query","method":"count","parameters":{"number":4}}',NULL,'1/50','0',NULL,'failed','null','037996de8ab84eb1fa0d8fccff7b06d8eebfc41f3c109f6e26d7cc0c9b951190','9e282d732ce704915e8fb8c5c83896e43c5e9fd4373003a021cba0d49a9d838f',NULL);
INSERT INTO "ledger_entry" VALUES('zcdp',6,'2026-11-22T04:23:54.014779+00:00','release','query','count','e870800e6f528116de4f8fdde6935b766c1b03b89804f5d6156952b728c167f5','{"dataset_version":"1edd41c877a18fd2e80ff95626addcf3a02f5af0844225068fba84014f1dccde","family":"query","method":"count","parameters":{"number":6}}',NULL,NULL,NULL,NULL,'no DP guarantee: 3-anonymous','{"asked":"k"}','9e282d732ce704915e8fb8c5c83896e43c5e9fd4373003a021cba0d49a9d838f','5bbab5ad17d58eef3d3f6fced49854d9a24f77e8f34043b33425b308eab0c6bc',NULL);
INSERT INTO "ledger_entry" VALUES('approximate',1,'2026-11-22T04:23:54.337009+00:00','release','query','tally','c4ac655e7c318ee644b73b21a88f610f2218bdfa04438e4429e7110fcc06bf9c','{"dataset_version":"8c2e8918d038f9d2740cc4e55573b3b0fdda61cd5a7a6c42d99fb901544d0b7d","family":"query","method":"tally","parameters":{"domain":"f73b5bbabedbe84641bc5b37da7fed23e0b31dc8a7def9cef3f41177a7a0b10f","loss":{"rho":"0.01"},"questions":[{"attributes":[],"groups":null,"kind":"marginal","where":null}],"shares":["1"]}}',NULL,'1/100','0',NULL,'zero-concentrated differential privacy with rho = 0.01 for adding or removing all rows of one person (at most 2)','{"asked":"count(*)"}','c2443aceba467393216ffe032ed656dc53aacf1407e4832614d810057164389d','ee8be4af4a8f1728677c0581e0fa8b991054110f4637dea9dff8e6eba1ca6aed',NULL);
INSERT INTO "ledger_entry" VALUES('approximate',2,'2026-11-22T04:23:54.391463+00:00','release','query','tally','053b6b531d02310acafdd51808335d4b32a9845a09738c055898a103764928c9','{"dataset_version":"8c2e8918d038f9d2740cc4e55573b3b0fdda61cd5a7a6c42d99fb901544d0b7d","family":"query","method":"tally","parameters":{"domain":"f73b5bbabedbe84641bc5b37da7fed23e0b31dc8a7def9cef3f41177a7a0b10f","loss":{"rho":"0.01"},"questions":[{"attributes":["town"],"groups":null,"kind":"marginal","where":null}],"shares":["1"]}}',NULL,'1/100','0',NULL,'zero-concentrated differential privacy with rho = 0.01 for adding or removing all rows of one person (at most 2)','{"asked":"count(*) by town"}','ee8be4af4a8f1728677c0581e0fa8b991054110f4637dea9dff8e6eba1ca6aed','ffb59b310afcf59f13815c1aedf05938c1d8f1137bbb2582c1fe7cfd321f0d29',NULL);
INSERT INTO "ledger_entry" VALUES('approximate',3,'2026-11-22T04:23:54.413053+00:00','release','synthesize','histogram','5f8f17c16eb300fc0393b1a9ab0a92195c7f6bed82771caae9a426b39e0b4ab6','{"dataset_version":"8c2e8918d038f9d2740cc4e55573b3b0fdda61cd5a7a6c42d99fb901544d0b7d","family":"synthesize","method":"histogram","parameters":{"cliques":[["town","age"]],"domain":"f73b5bbabedbe84641bc5b37da7fed23e0b31dc8a7def9cef3f41177a7a0b10f","loss":{"rho":"0.01"},"total":"summed"}}',NULL,'1/100','0',NULL,'zero-concentrated differential privacy with rho = 0.01 for adding or removing all rows of one person (at most 2)','{"asked":"synthetic rows of town x age"}','ffb59b310afcf59f13815c1aedf05938c1d8f1137bbb2582c1fe7cfd321f0d29','883b313d235596522420dd2cbee4addc8aac5a3416fff8149634f584060f36a6',NULL);
INSERT INTO "ledger_entry" VALUES('approximate',4,'2026-11-22T04:23:54.463229+00:00','release','query','count','087e4ae1282779c7f732064d906fc890d27eead0b46cddc77cb61c4f61a161db','{"dataset_version":"54ab895ce2e35f2fa413b2df8b4c3e70128b7e275daa312e9ba63798c1ad0152","family":"query","method":"count","parameters":{"number":3}}',NULL,'1/100','0',NULL,'three','null','883b313d235596522420dd2cbee4addc8aac5a3416fff8149634f584060f36a6','87b351f360c1d4e7977a01f2fe925c64e13cd7d77a2d50950e718469e1ded71e',NULL);
INSERT INTO "ledger_entry" VALUES('approximate',5,'2026-11-22T04:23:54.494115+00:00','release','query','count','23d5c9764400382297f99e32daa1ea9e6597ec71ed604ed994ebe1f4242d7e16','{"dataset_version":"54ab895ce2e35f2fa413b2df8b4c3e70128b7e275daa312e9ba63798c1ad0152","family":"query","method":"count","parameters":{"number":4}}',NULL,'1/100','0',NULL,'failed','null','87b351f360c1d4e7977a01f2fe925c64e13cd7d77a2d50950e718469e1ded71e','97878177dfb85833205426313c0b278bddc33b28f9e7121bdaf259cdf0253b98',NULL);
INSERT INTO "ledger_entry" VALUES('approximate',6,'2026-11-22T04:23:54.497510+00:00','release','query','count','28b657840a797b4108abb41ad4262c61553c337d8f4a3c0a968bf58d4f903e15','{"dataset_version":"54ab895ce2e35f2fa413b2df8b4c3e70128b7e275daa312e9ba63798c1ad0152","family":"query","method":"count","parameters":{"number":6}}',NULL,NULL,NULL,NULL,'no DP guarantee: 3-anonymous','{"asked":"k"}','97878177dfb85833205426313c0b278bddc33b28f9e7121bdaf259cdf0253b98','215f07173fcc4a11105c6915e40c0dd23583eba0a2b1bebc133908cfca6741d2',NULL);
CREATE TABLE ledger_retry (
	dataset TEXT NOT NULL, 
	analyst TEXT NOT NULL, 
	retry_key TEXT NOT NULL, 
	"key" TEXT NOT NULL, 
	PRIMARY KEY (dataset, analyst, retry_key), 
	FOREIGN KEY(dataset) REFERENCES ledger_dataset (name)
);
INSERT INTO "ledger_retry" VALUES('pure','ann','r3','d58bbf234056980f1cf2204119ad30206c29718670456f84304ffaa65bfc36cb');
INSERT INTO "ledger_retry" VALUES('zcdp','','r3','400db71fd3dbd4f63ae9b82edea9fad5b63175ba17e2d55856850ed2eae87e3c');
INSERT INTO "ledger_retry" VALUES('approximate','','r3','087e4ae1282779c7f732064d906fc890d27eead0b46cddc77cb61c4f61a161db');
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
	registered TEXT NOT NULL, called TEXT, retired TEXT, 
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
	revoked TEXT, used TEXT, 
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
CREATE TRIGGER ledger_entry_no_update BEFORE UPDATE ON ledger_entry BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER ledger_entry_no_delete BEFORE DELETE ON ledger_entry BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER ledger_retry_no_update BEFORE UPDATE ON ledger_retry BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER ledger_retry_no_delete BEFORE DELETE ON ledger_retry BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER ledger_dataset_fixed BEFORE UPDATE OF name, opened, secret, limit_loss, limit_units, limit_delta_units ON ledger_dataset BEGIN SELECT RAISE(ABORT, 'a limit never changes'); END;
CREATE TRIGGER ledger_dataset_kept BEFORE DELETE ON ledger_dataset BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE INDEX service_approval_found ON service_approval (dataset, release);
CREATE INDEX ledger_asked ON ledger_entry (dataset, analyst, number);
CREATE TRIGGER ledger_dataset_of_unit BEFORE UPDATE OF unit ON ledger_dataset WHEN OLD.unit IS NOT NULL AND NEW.unit IS NOT OLD.unit BEGIN SELECT RAISE(ABORT, 'a unit never changes'); END;
CREATE TRIGGER ledger_answer_no_update BEFORE UPDATE ON ledger_answer BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER ledger_answer_no_delete BEFORE DELETE ON ledger_answer BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE INDEX ledger_versions ON ledger_entry (dataset, number) WHERE kind = 'version';
CREATE TRIGGER ledger_dataset_forward BEFORE UPDATE ON ledger_dataset WHEN NEW.spent_units < OLD.spent_units OR NEW.entries < OLD.entries OR NEW.answers < OLD.answers OR NEW.version < OLD.version BEGIN SELECT RAISE(ABORT, 'what was spent is never refunded'); END;
CREATE INDEX ledger_uncharged ON ledger_entry (dataset, number) WHERE rho IS NULL;
CREATE TRIGGER service_action_no_update BEFORE UPDATE ON service_action BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER service_action_no_delete BEFORE DELETE ON service_action BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER service_action_kept BEFORE DELETE ON service_action_head BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER service_action_forward BEFORE UPDATE ON service_action_head WHEN NEW.number <> OLD.number + 1 BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
COMMIT;
